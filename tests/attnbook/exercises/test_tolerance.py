"""Tolerances have the scale of the terms, and separate right from wrong.

`tests/helpers/margins.py` prints the table of all exercises.
"""

import math

import pytest
import torch

from attnbook.exercises.cached_outcomes import draw_outcomes, list_outcomes
from attnbook.exercises.exercise import FIRST
from attnbook.exercises.outcome import take_draws
from attnbook.exercises.tolerance import (
    CERTAIN,
    DRAWS,
    FEW,
    RandomRounding,
    compute_tolerance,
    compute_tolerance_share,
    differs_certainly,
)
from margins import furthest, right, shares, wrong
from workshop.book.mistakes import list_entries

each = pytest.mark.parametrize(
    "entry", [pytest.param(x, id=x.name) for x in list_entries()]
)


@pytest.mark.long
@pytest.mark.precision
@each
def test_right_answers_stay_within_the_tolerances(entry):
    for name, answer in right(entry):
        share, case = furthest(entry, answer)
        assert share < 1, (name, case)


@pytest.mark.long
@pytest.mark.precision
@each
def test_wrong_answers_exceed_a_tolerance_five_times(entry):
    for name, answer in wrong(entry):
        assert any(x >= 5 for x, _ in shares(entry.exercise, answer)), name


@pytest.mark.long
@pytest.mark.precision
@each
def test_what_a_few_draws_make_certain_is_ten_tolerances_away(entry):
    exercise = entry.exercise
    solved = list_outcomes(exercise.draw, exercise.solution, FIRST)
    for nth, want in enumerate(map(exercise.compare_by, solved)):
        made = exercise.make_roundings(FIRST, nth)
        for i, one in enumerate(want.tensors):
            kinds = [(made.own, None)] * one.is_floating_point()
            if one.dtype == torch.float64:
                kinds.append((made.single, torch.float32))
            for kind, precision in kinds:
                few, every = (
                    compute_tolerance(one, take_draws(kind, i, n), precision)
                    for n in (FEW, DRAWS)
                )
                if every.numel():
                    assert 10 * every.max() <= CERTAIN * few.max()


@pytest.mark.precision
def test_certain_is_what_exceeds_many_times_the_largest_tolerance():
    right = torch.tensor([1.0, -2.0, math.inf])
    drawn = [right, right * 1.001, right * 0.999]
    allowed = float(compute_tolerance(right, drawn).max())
    ours = right + torch.tensor([0.9, 1.1, 0.0]) * CERTAIN * allowed
    found = differs_certainly(ours, right, drawn)
    assert found.tolist() == [False, True, False]
    assert not differs_certainly(ours, right, drawn[:FEW]).any()


def draws(function, *inputs, count=8):
    """Return a function's result as it is, then with random roundings."""
    made = [function(*inputs)]
    for seed in range(count):
        with RandomRounding(made[0].dtype, seed):
            made.append(function(*(x.clone() for x in inputs)))
    return made


def spread(made):
    """Return the root mean square of the draws' distances."""
    undrawn, *drawn = (x.double() for x in made)
    return (torch.stack(drawn) - undrawn).square().mean(0).sqrt()


def added(terms):
    """Return the sum of terms, one after the other."""
    total = torch.zeros((), dtype=terms.dtype)
    for term in terms:
        total = total + term
    return total


@pytest.mark.parametrize("count", [2, 3, 31, 257])
@pytest.mark.parametrize("sign", [0, 1], ids=["any sign", "one sign"])
def test_the_draws_scatter_more_than_sums_in_any_order(count, sign):
    rng = torch.Generator().manual_seed(count)
    terms = torch.randn(count, generator=rng)
    terms = terms.abs() if sign else terms
    sums = [added(terms[torch.randperm(count, generator=rng)]) for _ in range(30)]
    sums += [added(terms.sort(descending=way).values) for way in (True, False)]
    error = torch.stack(sums).double() - terms.double().sum()
    scatter = spread(draws(torch.sum, terms, count=40))
    assert error.square().mean().sqrt() < scatter
    assert error.abs().max() < compute_tolerance(sums[0], draws(torch.sum, terms))


def test_where_terms_cancel_the_tolerance_has_their_scale():
    a = torch.tensor([[1e4, -1e4, 1e-3]])
    b = torch.ones(3, 1)
    made = draws(torch.mm, a, b)
    assert made[0].abs() < 1e-2
    assert 1e4 * 2**-24 < compute_tolerance(made[0], made) < 1e4 * 2**-24 * 500
    assert compute_tolerance(made[0]) < 1e-7  # of the result alone


def test_the_tolerance_follows_the_precision():
    x = torch.linspace(-2, 3, 7)
    sizes = []
    for kind in torch.float64, torch.float32, torch.bfloat16:
        made = draws(lambda y: y.softmax(-1), x.to(kind))
        sizes.append(float(compute_tolerance(made[0], made).max()))
    assert sizes[0] * 1e6 < sizes[1] < sizes[2] / 1e3


def test_higher_precision_inside_is_rounded_as_single():
    """A learner may compute in the precision of the inputs."""
    position = torch.tensor([1000, 3000])

    def wave(x):
        return x * (position * 0.1234567).sin()

    def exactly(x):
        return (x * (position.double() * 0.1234567).sin()).to(x.dtype)

    x = torch.ones(2)
    made = draws(exactly, x)
    assert (compute_tolerance_share(wave(x), made[0], made) < 1).all()
    assert (compute_tolerance_share(wave(x), made[0]) > 1).any()


def test_a_function_that_only_moves_numbers_scatters_by_one_rounding():
    x = torch.linspace(1, 2, 35).reshape(5, 7)
    for move in (
        lambda x: x.mT.flip(0)[1:].repeat(2, 1),
        lambda x: torch.cat([x, x.roll(1)]).tril(),
        lambda x: x.amax(-1),
        lambda x: x.masked_fill(x > 1.51, 1.0),
    ):
        away = spread(draws(move, x, count=40))
        assert (away < 2 * 2**-22).all() and away.any()


def test_additions_in_place_are_rounded_in_place():
    total = torch.zeros(3)
    with RandomRounding(torch.float32, 0):
        view = total[:2]
        view += torch.full((2,), 0.1)
        view += torch.full((2,), 0.7)
    assert total[2] == 0
    assert (total[:2] - 0.8).abs().max() < 1e-6
    assert (total[:2] != torch.tensor(0.1) + torch.tensor(0.7)).any()


@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log_softmax"])
def test_a_softmax_may_be_computed_from_its_logsumexp(log):
    x = torch.tensor([[900.0, 898.5, 880.0], [-700.0, -30.0, -33.0]])
    usual = torch.log_softmax if log else torch.softmax
    made = draws(lambda x: usual(x, -1), x)
    other = x - x.logsumexp(-1, keepdim=True)
    other = other if log else other.exp()
    assert (compute_tolerance_share(other, made[0], made) < 1).all()


def test_a_weight_of_one_has_no_rounded_logsumexp():
    x = torch.tensor([[4e9, -4e9]])
    made = draws(lambda x: x.softmax(-1), x)
    assert compute_tolerance(made[0], made).max() < 1e-5


def test_whole_numbers_infinity_and_nan_have_no_tolerance():
    whole = torch.tensor([3, 4])
    assert (compute_tolerance_share(whole + 1, whole) == math.inf).all()
    assert (compute_tolerance_share(whole, whole) == 0).all()
    odd = torch.tensor([math.inf, math.nan, 1.0])
    assert (compute_tolerance_share(odd, odd) == 0).all()
    other = torch.tensor([3e38, 1.0, math.nan])
    assert (compute_tolerance_share(other, odd) == math.inf).all()


@pytest.mark.precision
def test_draws_are_made_only_where_they_decide_and_are_cached():
    check = next(list_entries()).exercise
    draw_outcomes.cache_clear()
    assert check(check.solution, 3, own=False)
    assert draw_outcomes.cache_info().misses == 0
    assert not check(lambda x: 1.01 * check.solution(x), 3)
    made = draw_outcomes.cache_info().misses
    assert made > 0
    assert not check(lambda x: 1.01 * check.solution(x), 3)
    assert draw_outcomes.cache_info().misses == made
