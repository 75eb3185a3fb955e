"""On a terminal an experiment says how long it takes; a log stays quiet."""

import sys
from types import SimpleNamespace

import pytest

from attnbook.records import read_record
from terminal import Terminal
from workshop.experiments import __main__ as command

pytestmark = [
    pytest.mark.exact("looks at what is printed"),
    pytest.mark.precision,
]


@pytest.mark.parametrize("real", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("name", ["mask_cost", "not_yet"])
def test_a_run_announces_its_duration_on_a_terminal(real, name, monkeypatch):
    stream = Terminal(real)
    monkeypatch.setattr(sys, "stderr", stream)
    record = read_record("mask_cost")
    experiment = SimpleNamespace(run=lambda: record)
    monkeypatch.setitem(command.EXPERIMENTS, name, experiment)
    assert command.repeat_run(name, progress=True)
    minutes = f"{record['wall_s'] / 60:.1f} minutes"
    known = minutes if name == "mask_cost" else "first time"
    assert (f"{name} runs" in stream.text and known in stream.text) == real
    assert bool(stream.text) == real
