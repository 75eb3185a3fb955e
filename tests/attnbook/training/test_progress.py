"""Progress bars move on a terminal and leave nothing in a log."""

import sys

import pytest

from attnbook.training.loop import make_progress_bar
from small_training import make_trainer
from terminal import Terminal


@pytest.mark.parametrize("real", [True, False], ids=["terminal", "pipe"])
def test_a_progress_bar_is_drawn_on_a_terminal_only(real, monkeypatch):
    stream = Terminal(real)
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(make_progress_bar(range(3), desc="words")) == [0, 1, 2]
    assert ("words" in stream.text) == real


@pytest.mark.parametrize("progress", [True, False], ids=["shown", "hidden"])
def test_training_shows_its_progress_on_a_terminal(progress, monkeypatch):
    stream = Terminal(True)
    monkeypatch.setattr(sys, "stderr", stream)
    make_trainer(epochs=2).run(progress=progress)
    assert ("epoch 2" in stream.text) == progress
