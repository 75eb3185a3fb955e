import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from attnbook.bench import flash, implementations
from attnbook.bench.__main__ import main
from attnbook.bench.rows import PLANS, Row, before_ampere
from attnbook.bench.table import table
from attnbook.bench.timing import interleaved, middle


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The tiny plan, measured once."""
    out = tmp_path_factory.mktemp("bench") / "flash.json"
    assert main(["flash", "--tiny", "--out", str(out)]) == 0
    return out


@pytest.mark.kernel
def test_a_record_says_what_was_measured_and_on_what(written):
    record = json.loads(written.read_text("utf8"))
    assert record["versions"]["torch"] == torch.__version__
    assert "cudnn" in record["versions"]
    assert set(record["ceilings"]) == {"copy_TB_per_s", "bf16_matmul_tflops"}
    assert [r["key"] for r in record["rows"]] == [r.key for r in PLANS["tiny"]]
    for row in record["rows"]:
        assert row["tflops"]["ours"] > 0
        assert row["tflops"]["ours_teaching"] == row["tflops"]["ours"]
        assert row["tflops"]["sdpa_cudnn"] is None
        assert row["refused"]["sdpa_cudnn"]
        assert {*row["tflops"]} == {*implementations.NAMES, "ours_teaching"}
        for name, speed in row["tflops"].items():
            assert (speed is None) == (row["spread"][name] is None)


@pytest.mark.kernel
def test_right_first(written):
    record = json.loads(written.read_text("utf8"))
    assert len(record["correct"]) == 6
    assert not record["wrong"]
    for shares in record["correct"].values():
        assert shares["ours"] <= 1


@pytest.mark.kernel
def test_a_stopped_run_goes_on_where_it_stopped(written, capsys, monkeypatch):
    record = json.loads(written.read_text("utf8"))
    kept = record["rows"].pop(1)
    written.write_text(json.dumps(record), "utf8")
    measured = []

    def note(row, device):
        measured.append(row.key)
        return kept

    monkeypatch.setattr(flash, "measure", note)
    flash.bench(PLANS["tiny"], "cpu", written)
    assert measured == [kept["key"]]


@pytest.mark.kernel
def test_when_time_is_up_the_rest_is_named(tmp_path):
    plan = PLANS["tiny"][-2:]
    record = flash.bench(plan, "cpu", tmp_path / "flash.json", limit=0)
    assert record["left"] == [row.key for row in plan]
    assert not record["rows"]


def test_a_t4_is_asked_for_what_it_can():
    plan = before_ampere(PLANS["full"])
    assert {(r.dtype, r.D) for r in plan} == {("float16", 64)}
    assert len({r.key for r in plan}) == len(plan) >= 24


@pytest.mark.kernel
def test_what_is_wrong_is_not_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        implementations,
        "flash_attention",
        lambda query, key, value, **_: query.mean() * value + key * 0,
    )
    out = tmp_path / "flash.json"
    assert main(["flash", "--tiny", "--out", str(out)]) == 1
    record = json.loads(out.read_text("utf8"))
    assert record["wrong"]
    assert not record["rows"]
    assert "ours is wrong" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so(capsys):
    assert main(["flash"]) == 1
    assert "PyTorch 2" in (told := capsys.readouterr().err)
    assert "sees none here" in told


def test_operations_are_counted_as_everybody_does():
    row = Row("fwd", "bfloat16", 128, 4096)
    assert row.shape == (4, 16, 16, 4096, 4096, 128)
    assert row.flops == 4 * 4096**2 * 128 * 16 * 4
    assert replace(row, causal=True).flops == row.flops / 2
    assert replace(row, way="bwd").flops == 2.5 * row.flops


def test_a_window_counts_the_pairs_that_are_seen():
    row = Row("fwd", "bfloat16", 8, 32, True, "window", tokens=64, columns=32)
    seen = implementations.visible(row, "cpu")
    B, H, *_, D = row.shape
    assert row.flops == 4 * B * H * D * int(seen.sum())


def test_plans_hold_what_was_promised():
    full = PLANS["full"]
    assert {r.N for r in full if r.case == "plain"} == {
        2**i for i in range(9, 15)
    }
    for row in full:
        assert row.columns == 2048
        assert row.case == "decoding" or row.tokens in (16384, 32768)
    assert {r.case for r in full} == {
        "plain", "window", "alibi", "grouped", "decoding",
    }  # fmt: skip
    assert {(r.way, r.dtype, r.D) for r in full if r.case == "plain"} == {
        (way, dtype, D)
        for way in ("fwd", "bwd")
        for dtype in ("float16", "bfloat16")
        for D in (64, 128)
    }
    assert len({r.key for r in full}) == len(full)


def test_the_middle_and_the_spread():
    assert middle([1.0, 2.0, 3.0, 4.0, 100.0]) == (3.0, pytest.approx(2 / 3))


def test_calls_take_turns():
    called = []
    calls = {n: [lambda n=n: called.append(n)] for n in "ab"}
    taken = interleaved(calls, "cpu", rounds=3)
    assert {k: len(v) for k, v in taken.items()} == {"a": 3, "b": 3}
    changes = sum(x != y for x, y in pairwise(called))
    assert changes == 2 * 3 + 1


def test_the_table_shows_who_did_not_run():
    speeds = dict.fromkeys((*implementations.NAMES, "ours_teaching"), 100.0)
    speeds |= {"sdpa_cudnn": None, "sdpa_flash": 200.0}
    row = Row("fwd", "bfloat16", 64, 512)
    record = {
        "device": "a GPU", "versions": {}, "wrong": {},
        "ceilings": {"copy_TB_per_s": 4.3},
        "rows": [
            {"pass": "fwd", "tflops": speeds, "dtype": "bfloat16", "D": 64,
             "N": 512, "causal": False, "case": "plain", "key": row.key}
        ],
    }  # fmt: skip
    last = table(record).splitlines()[-1].split()
    assert last[-1] == "0.50"
    assert last.count("-") == 1


def test_it_imports_nothing_that_a_bare_gpu_machine_lacks():
    ours = "matplotlib IPython ipywidgets anywidget safetensors sacrebleu"
    code = (
        "import sys, attnbook.bench.__main__;"
        f"sys.exit(bool({{*sys.modules}} & {{*{ours.split()}}}))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
