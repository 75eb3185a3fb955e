"""The benchmark on a CPU: its times and table, going on, and no GPU."""

import json
import sys

import pytest
import torch

from attnbook.flash import flash_attention
from workshop.bench import __main__ as command
from workshop.bench import gpu, kernels, record
from workshop.bench.cells import run_cells
from workshop.bench.kernels import (
    Case,
    draw_inputs,
    measure_case,
    measure_error,
)

CAUSAL = Case("causal", 8, 32, tokens=64, columns=16)
DECODING = Case("decoding", 8, 32, tokens=64, columns=32)


def test_every_implementation_that_runs_here_is_in_the_table(tmp_path):
    record.write_json(tmp_path / "machine.json", {"device": "cpu", "torch": "2"})
    assert command.run_cases([CAUSAL, DECODING], tmp_path, "cpu")
    case = json.loads((tmp_path / "case_causal_D8_S32.json").read_text("utf8"))
    assert case["refused"].keys() == {"sdpa cudnn", "sdpa efficient"}
    names = {(x["pass"], x["name"]) for x in case["times"]}
    assert ("backward", "ours") in names and ("forward", "sdpa math") in names
    table = command.format_table(tmp_path)
    assert "- device: cpu" in table
    assert "| causal_D8_S32 | backward |" in table
    assert "TB/s" in table.partition("| decoding_D8_S32 | forward |")[2]


def test_a_wrong_mask_or_gradient_is_refused(monkeypatch):
    def unmasked(*inputs, causal, strict):
        return flash_attention(*inputs)

    inputs = draw_inputs(CAUSAL, "cpu")
    assert measure_error(inputs, flash_attention(*inputs[:3], causal=True)) < 1e-4
    assert measure_error(inputs, (inputs[0],)) > 0.1
    monkeypatch.setattr(kernels, "flash_attention", unmasked)
    found = measure_case(CAUSAL, "cpu", rounds=1)
    assert "an error of" in found["refused"]["ours"]


def test_a_time_is_a_median_and_a_rate_counts_products(monkeypatch):
    def time_alike(calls, device, rounds):
        return {name: [4.0, 1.0, 2.0] for name in calls}

    monkeypatch.setattr(kernels, "time_in_turns", time_alike)
    first, *_ = measure_case(CAUSAL, "cpu")["times"]
    assert (first["ms"], first["spread"]) == (2, 0.75)
    products = 2 * 2 * 8 * 32 * 32  # B H D T S
    assert CAUSAL.measure_rate("forward", 2e-12 * products, 4) == "1 TFLOP/s"
    assert CAUSAL.measure_rate("backward", 2e-12 * products, 4) == "2.5 TFLOP/s"


def test_a_case_that_is_there_is_not_measured_again(tmp_path, monkeypatch):
    (tmp_path / f"case_{CAUSAL.name}.json").write_text("{}", "utf8")
    monkeypatch.setattr(command, "measure_case", lambda case, device: {"new": 1})
    assert not command.run_cases([CAUSAL, DECODING], tmp_path, "cpu", seconds=0)
    assert command.run_cases([CAUSAL, DECODING], tmp_path, "cpu")
    files = {path.name: path.read_text("utf8") for path in tmp_path.iterdir()}
    assert files.pop(f"case_{CAUSAL.name}.json") == "{}"
    assert [json.loads(text) for text in files.values()] == [{"new": 1}]


@pytest.mark.parametrize("main", [gpu.main, command.main])
def test_without_a_gpu_one_sentence_says_so(main, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="no CUDA device: nothing"):
        main(["--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_a_cell_without_its_package_is_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    sources = ["import missing_package as y", "y", "x = 3", "x * 5", "assert x == 4"]
    cells = [{"cell_type": "code", "source": [source]} for source in sources]
    path = tmp_path / "chapter.ipynb"
    path.write_text(json.dumps({"cells": cells}), "utf8")
    outcomes = [cell["outcome"] for cell in run_cells(path)]
    assert outcomes == ["left out", "left out", "ran", "ran", "failed"]
    assert capsys.readouterr().out == "15\n"
