"""How often an attempt is called, and what is recorded in which call."""

import io
import sys
from dataclasses import replace
from types import ModuleType

import pytest
import torch

from attnbook.exercises import runner
from attnbook.exercises.exercise import FIRST, Case
from attnbook.exercises.guard import ModuleRestorer
from attnbook.exercises.memory_limit import MemoryLimit
from doubling import double

# The hook that checks shapes would be among the calls.
pytestmark = pytest.mark.precision


def test_first_inputs_are_tried_twice_and_fresh_ones_once():
    seen = []

    def answer(x, n):
        seen.append(x[0].item())
        return 2 * x

    trials = double.run_attempt(answer, (FIRST, 7))
    assert [len(trial.rounds) for trial in trials] == [2, 1]
    first, fresh = (double.draw_cases(seed) for seed in (FIRST, 7))
    given = [case.inputs[0][0].item() for case in (*first, *first, *fresh)]
    assert seen == given
    assert double.judge(trials)


def test_run_rounds_tries_all_inputs_twice_by_default():
    rounds = runner.run_rounds(lambda x, n: 2 * x, double.draw_cases(7), frozenset())
    assert len(rounds) == 2


def test_calls_are_recorded_only_in_a_thorough_run():
    """Grading is thorough; a chapter's check is so on the first inputs only."""

    def answer(x, n):
        return 2 * torch.softmax(x, 0)

    cases, forbidden = double.draw_cases(7), frozenset({"softmax"})
    for thorough, used in ((True, ("softmax",)), (False, ())):
        first, *_ = runner.run_rounds(answer, cases, forbidden, thorough=thorough)
        assert {x.used for x in first} == {used}


@pytest.fixture
def limits(monkeypatch):
    """The limit of every call whose memory was measured, in order."""
    made = []

    def measure(limit, count_arrays):
        made.append(limit)
        return MemoryLimit(limit, count_arrays)

    monkeypatch.setattr(runner, "MemoryLimit", measure)
    return made


@pytest.mark.parametrize(("limit", "count", "fails"), [(10**6, 2, False), (4, 3, True)])
def test_memory_is_measured_again_only_after_an_error(limits, limit, count, fails):
    """If it were not, the second round would lack the first one's error."""

    def draw(rng):
        return (Case("on x", (torch.rand(2, generator=rng), 2), False, limit),)

    asked = replace(double, draw=draw, mistakes=())
    trials = asked.run_attempt(lambda x, n: 2 * x, (FIRST, 7))
    assert len(limits) == count
    errors = {x.error for t in trials for r in t.rounds for x in r}
    assert all(str(x).startswith("MemoryError") for x in errors) == fails
    assert [len(trial.rounds) for trial in trials] == [2, 1]


@pytest.mark.parametrize("more", [[], ["another"]], ids=["alone", "and one"])
def test_a_module_that_a_call_removed_is_put_back(monkeypatch, more):
    with ModuleRestorer():
        del sys.modules["io"]
        for name in more:
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert sys.modules["io"] is io
