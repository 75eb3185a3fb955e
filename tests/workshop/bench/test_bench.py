"""The benchmark on a CPU: its times and table, going on, and no GPU."""

import json
import sys
import time

import pytest
import torch

from attnbook.flash import flash_attention
from workshop.bench import __main__ as command
from workshop.bench import gpu, kernels, record
from workshop.bench.cells import run_cells
from workshop.bench.kernels import Case, draw_inputs, measure_case, measure_error

CAUSAL = Case("causal", 64, 32, tokens=64, columns=128)
TAUGHT = Case("tutorial", 8, 32, tokens=64, columns=16)
TUTORIAL = """
from torch.nn.functional import scaled_dot_product_attention as attend
class _attention:
    def forward(ctx, q, k, v, causal, scale, warp_specialize=True): ...
def attention(q, k, v, causal, scale, warp_specialize):
    return attend(q, k, v, is_causal=causal, scale=scale)
"""
DECODING = Case("decoding", 8, 32, tokens=64, columns=32)


def test_every_implementation_that_runs_here_is_in_the_table(tmp_path, monkeypatch):
    record.write_json(tmp_path / "machine.json", {"device": "cpu", "torch": "2"})
    (tmp_path / "tutorial.py").write_text(TUTORIAL, "utf8")
    monkeypatch.setattr(kernels, "TUTORIAL", str(tmp_path / "tutorial.py"))
    assert command.run_cases([CAUSAL, DECODING, TAUGHT], tmp_path, "cpu")
    case = json.loads((tmp_path / "case_causal_D64_S32.json").read_text("utf8"))
    assert case["refused"].keys() == {"sdpa cudnn", "sdpa efficient", "FA3", "FA4"}
    assert "named 'flash_attn" in case["refused"]["FA3"]
    names = {(x["pass"], x["name"]) for x in case["times"]}
    assert ("backward", "ours") in names and ("forward", "sdpa math") in names
    table = command.format_table(tmp_path)
    assert "- device: cpu" in table
    assert "| causal_D64_S32 | backward | sdpa math |" in table
    assert "| tutorial_D8_S32 | backward | tutorial |" in table
    assert "TB/s" in table.partition("| decoding_D8_S32 | forward | ours |")[2]


def test_a_wrong_mask_or_gradient_is_refused(monkeypatch):
    def unmasked(*inputs, causal, strict):
        return flash_attention(*inputs)

    inputs = draw_inputs(CAUSAL, "cpu")
    assert measure_error(inputs, flash_attention(*inputs[:3], causal=True)) < 1e-4
    assert measure_error(inputs, (inputs[0],)) > 0.1
    monkeypatch.setattr(kernels, "flash_attention", unmasked)
    found = measure_case(CAUSAL, "cpu", rounds=2)
    assert "an error of" in found["refused"]["ours"]


def test_a_time_is_a_median_and_a_rate_counts_products(monkeypatch):
    def time_by_name(calls, device, rounds):
        slow = {"ours": [4.0, 1.0, 2.0], "sdpa math": [9.0, 9.0, 9.0]}
        return {name: slow.get(name, [2.0, 0.5, 0.5]) for name in calls}

    monkeypatch.setattr(kernels, "time_in_turns", time_by_name)
    case = measure_case(CAUSAL, "cpu")
    first, *_ = case["times"]
    assert (first["ms"], first["spread"]) == (2, 0.75)
    text = "- causal_D64_S32 backward: 0.50 (0.38 to 0.50) of sdpa, BELOW 0.7"
    assert command.format_shares(case)[-1] == text
    products = 2 * 2 * 64 * 32 * 32  # B H D T S
    assert CAUSAL.measure_rate("forward", 2e-12 * products, 4) == "1 TFLOP/s"
    assert CAUSAL.measure_rate("backward", 2e-12 * products, 4) == "2.5 TFLOP/s"


def test_after_a_crash_the_other_cases_come_first_and_none_twice(tmp_path, monkeypatch):
    (tmp_path / f"case_{CAUSAL.name}.begun").touch()
    (tmp_path / f"case_{DECODING.name}.json").write_text("{}", "utf8")
    measured = []
    monkeypatch.setattr(command, "measure_case", lambda case, _: measured.append(case))
    assert command.run_cases([CAUSAL, DECODING, TAUGHT], tmp_path, "cpu")
    assert measured == [TAUGHT, CAUSAL]


def test_slow_tests_leave_time_for_the_benchmark(tmp_path, monkeypatch):
    ends = []

    def run(words, log, end):
        ends.append((words[0], round(end - start)))
        if "--collect-only" in words:
            log.write_text("tests/test_a.py::test_b\nERROR tests/test_c.py\n", "utf8")
        elif words[0] == "pytest":
            log.write_text("ended with -11: test_b\n", "utf8")

    monkeypatch.setattr(gpu, "open_folder", lambda _: None)
    monkeypatch.setattr(gpu, "run", run)
    monkeypatch.setattr(gpu, "format_table", lambda _: "")
    refused = {"ours": "ValueError: strict=True excludes 128 wide"}  # on a T4
    wide = {"name": "wide", "refused": refused}
    record.write_json(tmp_path / "case_wide.json", wide)
    start = time.monotonic()
    assert gpu.main(["--out", str(tmp_path)]) == 1
    text = (tmp_path / "summary.md").read_text("utf8")
    assert "1 tests marked cuda: {}" in text and "FAILED ERROR tests/test_c.py" in text
    assert "FAILED ended with -11: test_b" in text and "wide" not in text
    assert ends[2:4] == [("workshop.bench", 450), ("workshop.bench.cells", 525)]
    assert ends[1] == ("pytest", 200) and ends[-2] == ("pytest", 525)


@pytest.mark.parametrize("main", [gpu.main, command.main])
def test_without_a_gpu_one_sentence_says_so(main, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="no CUDA device: nothing"):
        main(["--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_a_cell_without_its_package_is_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    sources = ["import missing_package as y", "y", "# no line", "x = 3; x * 5", "miss"]
    cells = [{"cell_type": "code", "source": [source]} for source in sources]
    path = tmp_path / "chapter.ipynb"
    path.write_text(json.dumps({"cells": cells}), "utf8")
    outcomes = [cell["outcome"] for cell in run_cells(path)]
    assert outcomes == ["left out", "left out", "ran", "ran", "failed"]
    assert capsys.readouterr().out == "15\n"
