"""Every exercise: its solution is right, and its mistakes are known by name."""

import importlib
import pkgutil

import pytest

from attnbook import exercises
from attnbook.exercises.declare import Exercise


def list_exercises():
    """Yield every exercise with its name."""
    for module in pkgutil.iter_modules(exercises.__path__):
        found = importlib.import_module(f"attnbook.exercises.{module.name}")
        for name, value in vars(found).items():
            if isinstance(value, Exercise):
                yield pytest.param(value, id=f"{module.name}-{name}")


def stub(*given, **more):
    raise NotImplementedError


each_exercise = pytest.mark.parametrize("check", [*list_exercises()])


@each_exercise
def test_a_solution_is_right(check):
    assert check(check.solution, own=False)
    assert check(check.solution).mistake == "ready-made"
    assert check(stub).mark == "…"


@pytest.mark.precision
@each_exercise
def test_mistakes_are_known_by_name(check):
    for mistake in check.mistakes:
        for nth, answer in enumerate(mistake.answers):
            verdict = check(answer, own=False)
            assert verdict.mistake == mistake.slug, (mistake.slug, nth, verdict)
