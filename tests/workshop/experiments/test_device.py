"""Recorded runs on a chosen device: what is refused, and what is kept."""

import json

import pytest
import torch

from attnbook.records import REQUIRED_FIELDS
from workshop.experiments import __main__ as command
from workshop.experiments import (
    device,
    record,
)
from workshop.experiments.record import make_record, save_weights, write_record
from workshop.experiments.registry import (
    EXPERIMENTS,
    Experiment,
    find_experiments,
)

pytestmark = pytest.mark.precision
NAME = "grammar_attention_0"
find_experiments()


def refused(words, capsys):
    """Return the one sentence with which a command is refused."""
    with pytest.raises(SystemExit, match="2"):
        command.main(words)
    return capsys.readouterr().err.strip().splitlines()[-1]


def test_a_device_that_is_not_there_is_refused_by_its_name(monkeypatch, capsys):
    message = refused([NAME, "--device", "gpu"], capsys)
    assert "'gpu' is not a device that runs are recorded on" in message
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    message = refused([NAME, "--device", "cuda:0"], capsys)
    assert "'cuda:0' was requested" in message
    assert "finds no NVIDIA GPU on this machine" in message


def test_a_gpu_beyond_the_last_one_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    message = refused([NAME, "--device", "cuda:2"], capsys)
    assert "the last of this machine's 2 GPUs is cuda:1" in message
    assert device.parse_device("cuda:1") == torch.device("cuda:1")
    assert device.parse_device("cuda") == torch.device("cuda:0")


def test_a_run_that_measures_the_processor_takes_no_gpu(monkeypatch, capsys):
    monkeypatch.setattr(device, "parse_device", lambda _: torch.device("cuda:0"))
    monkeypatch.setattr(command, "parse_device", device.parse_device)
    message = refused(["mask_cost", "--device", "cuda"], capsys)
    assert "mask_cost always runs on the CPU, not on cuda:0" in message


def test_a_record_names_the_device_it_was_made_on(monkeypatch):
    monkeypatch.setattr(
        torch.cuda, "get_device_name", lambda device: f"Fast {device.index}"
    )
    assert make_record("a_run", [0], {})["device"] == device.describe_device(
        device.CPU, record.read_processor_name()
    )
    with device.use_device(torch.device("cuda:1")):
        made = make_record("a_run", [0], {})
    assert made["device"].startswith("Fast 1 (cuda:1), ")
    assert made["command"].endswith("a_run --device cuda:1")
    assert make_record("a_run", [0], {})["command"].endswith("a_run")


def test_the_chosen_device_applies_only_during_the_runs():
    with pytest.raises(KeyError), device.use_device(torch.device("cuda:0")):
        assert device.get_device() == torch.device("cuda:0")
        raise KeyError
    assert device.get_device() == device.CPU


def stored(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def test_the_other_runs_go_on(monkeypatch, capsys):
    done = []

    def small():
        done.append("small")
        return dict.fromkeys(REQUIRED_FIELDS, "2026") | {"cpu_s": 60}

    def large():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried ...")

    for name, function in ("x_large", large), ("x_small", small):
        made = Experiment(name, function, on_cpu=False, module="x")
        monkeypatch.setitem(EXPERIMENTS, name, made)
    assert command.main(["x_"]) == 1
    assert done == ["small"]
    assert "the same command begins anew" in capsys.readouterr().err


def test_an_interrupted_write_leaves_the_old_record(tmp_path, monkeypatch):
    made = make_record("a_run", [0], {"bleu": 1.0}, wall_s=1.0, cpu_s=0.5)
    write_record(made, tmp_path)
    save_weights(torch.nn.Linear(2, 3), "a_run", tmp_path)
    before = stored(tmp_path)

    def stop(path, *_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(tmp_path), "replace", stop)
    for again in (
        lambda: write_record(made | {"results": {}}, tmp_path),
        lambda: save_weights(torch.nn.Linear(2, 3), "a_run", tmp_path),
    ):
        with pytest.raises(KeyboardInterrupt):
            again()
    kept = {k: v for k, v in stored(tmp_path).items() if k in before}
    assert kept == before
    assert json.loads(before["a_run.json"])["results"] == {"bleu": 1.0}
