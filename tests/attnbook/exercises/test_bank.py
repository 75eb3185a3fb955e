"""`make bank`: twenty draws of every answer, and mutants of every solution."""

import copy
import importlib

import pytest

from equivalent_mutants import find_reason
from mutants import make_mutants
from ordinary_answers import list_ordinary
from workshop.book.mistakes import list_entries

pytestmark = pytest.mark.bank
SEEDS = range(100, 120)
ENTRIES = list(list_entries())
each = pytest.mark.parametrize(
    "entry", ENTRIES, ids=[f"{x.module}-{x.name}" for x in ENTRIES]
)


def bank(kind, entry):
    module = importlib.import_module(f"{kind}_answers.{entry.module}")
    return module.ANSWERS[entry.name]


@each
def test_every_wrong_answer_is_named_on_twenty_draws(entry):
    named = [(m.slug, m.answer) for m in entry.exercise.mistakes]
    named += [(wrong.slug, wrong.answer) for wrong in bank("wrong", entry)]
    for seed in SEEDS:  # outside: what is drawn for one is remembered
        for slug, answer in named:
            verdict = entry.exercise(copy.deepcopy(answer), seed)
            assert not verdict
            assert verdict.mistake == slug, (seed, verdict)


@each
def test_every_right_answer_is_accepted_on_twenty_draws(entry):
    for seed in SEEDS:
        for words, answer in bank("right", entry):
            verdict = entry.exercise(answer, seed)
            assert verdict, (words, seed, verdict)


@each
def test_every_ordinary_way_is_right_on_twenty_draws(entry):
    for words, answer in list_ordinary(entry):
        for seed in SEEDS:
            verdict = entry.exercise(answer, seed, own=False)
            assert verdict, (words, seed, verdict)


@each
def test_every_mutant_of_a_solution_is_refused_or_listed(entry, record_property):
    count, alive = 0, []
    for message, mutant in make_mutants(entry.exercise.solution):
        count += 1
        if entry.exercise(mutant, 7, own=False):
            alive.append(message)
    print(f"{entry.name}: {count} mutants, {len(alive)} do the same")
    assert [x for x in alive if not find_reason(entry.name, x)] == []
