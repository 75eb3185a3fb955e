"""Checks judge answers that were written after them, without a bank."""

import pytest

from held_out_right import RIGHT, SEEDS
from held_out_wrong import WRONG

pytestmark = pytest.mark.precision
FRESH = 5  # as in test_exercises.py, so that cached outcomes are shared
# Beyond what an exercise asks: NaN in one of several sequences, and numbers of
# heads for which the paper's own code has other slopes.
REMARKED = {"nan", "heads, beyond"}
ACCEPTED = {
    "causal_by_buffer_of_1024": "257 positions are tried, because an answer "
    "may compare all pairs in a loop",
    "gradient_by_node": "no call of a node has a name",
}


def name(one):
    return f"{one.where.partition('.')[2]}-{one.kind}-{one.words}"


def test_there_are_enough_held_out_answers():
    assert len(WRONG) >= 60
    assert len(RIGHT) >= 120
    assert len(ACCEPTED) <= 3
    assert len({(x.where, x.words) for x in RIGHT}) == len(RIGHT)


@pytest.mark.parametrize("one", WRONG, ids=map(name, WRONG))
def test_a_held_out_wrong_answer_is_refused(one):
    verdict = one.exercise(one.answer, FRESH)
    if one.kind in REMARKED:
        assert verdict and verdict.remarks
    else:
        assert bool(verdict) == (one.answer.__name__ in ACCEPTED), verdict


@pytest.mark.parametrize("one", RIGHT, ids=map(name, RIGHT))
def test_a_held_out_right_answer_is_accepted(one):
    verdict = one.exercise(one.answer, FRESH)
    assert verdict, verdict


@pytest.mark.parametrize("one", RIGHT, ids=map(name, RIGHT))
def test_a_held_out_right_answer_is_accepted_on_twenty_draws(one):
    for seed in SEEDS:
        verdict = one.exercise(one.answer, seed)
        assert verdict, (seed, verdict)
