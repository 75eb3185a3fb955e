import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from workshop.bench import flash, implementations
from workshop.bench.__main__ import main
from workshop.bench.accuracy import draw_inputs
from workshop.bench.machine import (
    MEASURED,
    detect_flash_backend,
    hash_code,
    list_files,
)
from workshop.bench.rows import PLANS, Row, restrict_to_turing
from workshop.bench.table import format_table
from workshop.bench.timing import compute_median


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The tiny plan, measured once."""
    out = tmp_path_factory.mktemp("bench") / "flash.json"
    assert main(["flash", "--tiny", "--out", str(out)]) == 0
    return out


@pytest.mark.long
@pytest.mark.kernel
def test_a_record_contains_what_was_measured_and_on_what(written):
    record = json.loads(written.read_text("utf8"))
    assert record["versions"]["torch"] == torch.__version__
    assert "cudnn" in record["versions"]
    assert {"driver", "clocks", "sdpa_flash"} <= {*record}
    assert record["code"] == hash_code(list_files(MEASURED))
    assert {*record["ceilings"]} == {"copy_TB_per_s", "float32_matmul_tflops"}
    assert all(record["ceilings"].values())
    assert [r["key"] for r in record["rows"]] == [r.key for r in PLANS["tiny"]]
    for row in record["rows"]:
        assert row["pass"] in ("fwd", "bwd")
        assert {"dtype", "D", "N", "causal", "case", "clocks"} <= {*row}
        assert row["tflops"]["ours"] > 0
        assert row["tflops"]["ours_teaching"] is None
        assert row["tflops"]["sdpa_cudnn"] is None
        assert row["refused"]["sdpa_cudnn"]
        assert {*row["tflops"]} == {*implementations.NAMES, "ours_teaching"}
        for name, speed in row["tflops"].items():
            assert (speed is None) == (row["spread"][name] is None)
            if speed is not None and name != "ours":
                low, median, high = row["faster"][name]
                assert 0 < low <= median <= high


@pytest.mark.long
@pytest.mark.kernel
def test_every_result_is_compared_with_the_reference_before_it_is_timed(
    written,
):
    record = json.loads(written.read_text("utf8"))
    assert len(record["correct"]) == 6
    assert not record["wrong"]
    for shares in record["correct"].values():
        assert shares["ours"] <= 1
    for row in record["rows"]:
        timed = {n for n, x in row["tflops"].items() if x is not None}
        assert {*row["share"]} == timed
        assert ("flex" in timed) == (row["pass"] == "fwd")


def test_a_t4_is_given_only_supported_rows():
    plan = restrict_to_turing(PLANS["full"])
    assert {(r.dtype, r.D) for r in plan} == {("float16", 64)}
    assert len({r.key for r in plan}) == len(plan) >= 24


def test_a_t4s_ceiling_is_measured_in_the_precision_of_its_rows(monkeypatch):
    asked = []

    def measure(width, rounds, dtype, device):
        asked.append(dtype)
        return 2e12

    monkeypatch.setattr(flash, "measure_product_rate", measure)
    monkeypatch.setattr(flash, "measure_copy_rate", lambda *_, **__: 1e12)
    record = {"ceilings": {}}
    plan = restrict_to_turing(PLANS["full"])
    flash.measure_ceilings(plan, "cpu", record)
    assert asked == [torch.float16]
    assert record["ceilings"] == {
        "copy_TB_per_s": 1.0,
        "float16_matmul_tflops": 2.0,
    }


@pytest.mark.parametrize("told", ["FA3", None])
def test_the_flash_backend_of_pytorch_is_recorded_by_its_name(told, monkeypatch):
    monkeypatch.setattr(
        torch.nn.attention,
        "current_flash_attention_impl",
        lambda: told,
        raising=False,
    )
    assert detect_flash_backend() == (told or "built in")


@pytest.mark.kernel
def test_a_kind_of_row_that_we_compute_wrong_is_not_measured(
    tmp_path, monkeypatch, capsys
):
    ours = implementations.flash_attention

    def wrong_window(query, key, value, window=None, **more):
        output = ours(query, key, value, window=window, **more)
        return output * (1.1 if window else 1)

    monkeypatch.setattr(implementations, "flash_attention", wrong_window)
    out = tmp_path / "flash.json"
    plan = [r for r in PLANS["tiny"] if r.case in ("window", "grouped")]
    monkeypatch.setitem(PLANS, "tiny", plan)
    assert main(["flash", "--tiny", "--out", str(out)]) == 1
    record = json.loads(out.read_text("utf8"))
    assert len(record["rows"]) == len(plan)
    assert list(record["wrong"]) == ["window, causal True, float32, D 8"]
    for row in record["rows"]:
        assert ("failed" in row) == (row["case"] == "window")
        assert (row["tflops"]["ours"] is None) == (row["case"] == "window")
    assert "ours is wrong" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_reported(capsys):
    assert main(["flash"]) == 2
    assert "PyTorch 2" in (report := capsys.readouterr().err)
    assert "sees none here" in report
    assert len(report.splitlines()) == 1


def test_a_file_that_is_no_record_is_refused_and_kept(tmp_path, capsys):
    out = tmp_path / "flash.json"
    for text in ("{", "[1]"):
        out.write_text(text)
        assert main(["flash", "--tiny", "--out", str(out)]) == 2
        assert out.name in capsys.readouterr().err
        assert out.read_text() == text


def test_operations_are_counted_by_the_standard_formula():
    row = Row("fwd", "bfloat16", 128, 4096)
    assert row.shape == (4, 16, 16, 4096, 4096, 128)
    assert row.flops == 4 * 4096**2 * 128 * 16 * 4
    assert replace(row, causal=True).flops == row.flops / 2
    assert replace(row, direction="bwd").flops == 2.5 * row.flops


def test_decoding_counts_every_number_once():
    row = Row("fwd", "bfloat16", 64, 8192, False, "decoding", tokens=32 * 8192)
    query, key, value, output = draw_inputs(replace(row, N=16, tokens=64), "cpu")
    numbers = sum(x.numel() for x in (query, key, value, output))
    assert replace(row, N=16, tokens=64).bytes == 2 * numbers
    assert replace(row, dtype="float32").bytes == 2 * row.bytes
    # Almost all of it is keys and values of 32 · 8 heads.
    assert row.bytes == pytest.approx(2 * 2 * 32 * 8 * 8192 * 64, rel=5e-4)


def test_a_window_counts_the_unmasked_pairs():
    row = Row("fwd", "bfloat16", 8, 32, True, "window", tokens=64, columns=32)
    seen = implementations.build_mask(row, "cpu")
    B, H, *_, D = row.shape
    assert row.flops == 4 * B * H * D * int(seen.sum())


def test_plans_contain_every_required_kind_of_row():
    full = PLANS["full"]
    assert {r.N for r in full if r.case == "plain"} == {2**i for i in range(9, 15)}
    for row in full:
        assert row.columns == 2048
        assert row.case == "decoding" or row.tokens in (16384, 32768)
    assert {r.case for r in full} == {
        "plain", "window", "alibi", "grouped", "decoding",
    }  # fmt: skip
    assert {(r.direction, r.dtype, r.D) for r in full if r.case == "plain"} == {
        (way, dtype, D)
        for way in ("fwd", "bwd")
        for dtype in ("float16", "bfloat16")
        for D in (64, 128)
    }
    assert len({r.key for r in full}) == len(full)


def test_the_spread_is_that_of_the_quartiles_around_the_median():
    assert compute_median([1.0, 2.0, 3.0, 4.0, 100.0]) == (
        3.0,
        pytest.approx(2 / 3),
    )


def test_the_table_shows_implementations_that_did_not_run():
    speeds = dict.fromkeys((*implementations.NAMES, "ours_teaching"), 100.0)
    speeds |= {"sdpa_cudnn": None, "sdpa_flash": 200.0}
    row = Row("fwd", "bfloat16", 64, 512)
    record = {
        "device": "a GPU", "driver": "1", "code": "c", "versions": {},
        "wrong": {},
        "ceilings": {"copy_TB_per_s": 4.3},
        "rows": [
            {"pass": "fwd", "tflops": speeds, "dtype": "bfloat16", "D": 64,
             "N": 512, "causal": False, "case": "plain", "key": row.key}
        ],
    }  # fmt: skip
    last = format_table(record).splitlines()[-1].split()
    assert last[-2:] == ["0.50", "1.00"]
    assert last.count("-") == 1


@pytest.mark.long
def test_the_benchmark_imports_no_package_that_a_bare_gpu_machine_lacks():
    ours = "matplotlib IPython ipywidgets anywidget safetensors sacrebleu"
    code = (
        "import sys, workshop.bench.__main__;"
        f"sys.exit(bool({{*sys.modules}} & {{*{ours.split()}}}))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
