"""The command and the engine of recorded runs, and every stored record."""

import math
from datetime import datetime

import pytest
import torch

from attnbook.records import list_records, read_record
from workshop.experiments import __main__ as command
from workshop.experiments import record

pytestmark = pytest.mark.precision
NAME = "grammar_attention_0"
KNOWN = record.find_experiments()


def refused(words, capsys):
    """Return the one sentence with which a command is refused."""
    with pytest.raises(SystemExit, match="2"):
        command.main(words)
    return capsys.readouterr().err.strip().splitlines()[-1]


def test_a_wrong_word_is_refused_in_one_sentence(capsys, monkeypatch):
    message = "'smolm2_sinks'; the nearest are smollm2_sinks"
    assert message in refused(["smolm2_sinks"], capsys)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "2")
    message = "process 2 has no GPU: PyTorch finds 2 here"
    assert message in refused([NAME, "--gpus"], capsys)


def test_only_training_runs_are_divided_or_use_a_gpu(capsys, monkeypatch):
    message = "mask_cost is no training run: it runs in one process on the CPU"
    assert message in refused(["mask_cost", "--gpus"], capsys)
    monkeypatch.setattr(torch.distributed, "is_torchelastic_launched", lambda: True)
    assert message in refused(["mask_cost"], capsys)


def test_the_beginning_of_a_name_is_enough(monkeypatch, capsys):
    stored = read_record("smollm2_sinks")
    monkeypatch.setitem(record.EXPERIMENTS, "smollm2_sinks", lambda: stored)
    command.main(["smollm2_sink"])
    assert "smollm2_sinks: `python -m workshop.experiments" in capsys.readouterr().out


def read_folder(folder):
    return {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_an_interrupted_write_leaves_the_old_record(records_of_the_test, monkeypatch):
    made = record.make_record("a_run", [0], {"x": 1 / 3}, wall_s=1.0, cpu_s=0.5)
    record.write_record(made)
    record.save_weights(torch.nn.Linear(2, 3), "a_run")
    before = read_folder(records_of_the_test)

    def stop(path, *_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(records_of_the_test), "replace", stop)
    for again in (
        lambda: record.write_record(made | {"results": {}}),
        lambda: record.save_weights(torch.nn.Linear(2, 3), "a_run"),
    ):
        with pytest.raises(KeyboardInterrupt):
            again()
    assert before.items() <= read_folder(records_of_the_test).items()
    assert read_record("a_run", records_of_the_test)["results"] == {"x": 0.333333}


def test_two_experiments_cannot_have_one_name():
    with pytest.raises(ValueError, match=f"two experiments are named '{NAME}'"):
        record.register(NAME, None, record.RUNS)


def list_numbers(value):
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list):
        return [x for part in value for x in list_numbers(part)]
    return [value] if isinstance(value, int | float) else []


def test_every_experiment_has_a_record():
    assert {*KNOWN} == {*list_records()}


@pytest.mark.parametrize("name", list_records())
def test_a_record_fits_its_schema(name):
    stored = read_record(name)
    assert stored["command"] == f"python -m workshop.experiments {name}"
    assert all(type(seed) is int for seed in stored["seeds"])
    assert stored["device"] and {"python", "torch"} <= {*stored["versions"]}
    assert datetime.fromisoformat(stored["date"]).tzinfo
    assert stored["wall_s"] > 0 and stored["cpu_s"] > 0
    numbers = list_numbers(stored["results"])
    assert numbers and all(map(math.isfinite, numbers))


@pytest.mark.parametrize("name", record.RUNS)
def test_a_training_run_is_repeated_with_its_recorded_settings(name):
    stored, run = read_record(name), record.RUNS[name]
    assert stored["recipe"] == vars(run.recipe)
    assert stored["model"] == {k: v for k, v in vars(run).items() if k != "recipe"}
