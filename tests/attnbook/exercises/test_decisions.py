"""The bounds by which diagnoses tell a fault from rounding have room.

A diagnosis calls a function twice and asks `torch.allclose` whether the results
agree. Those of one computation, taken in another order, differ by rounding;
those of two computations differ by what the fault changes. The bound between
them must be five times the first at least, and a fifth of the second at most.

Rounding depends on the processor. Its model is that of the exercises'
tolerances: every rounding is drawn at random, with `WIDER` times the standard
deviation of any order of summation, or more. Divided by as much, no distance
may pass the bound.
"""

from functools import cache
from unittest import mock

import pytest
import torch

from attnbook.exercises.copying import copy_input
from attnbook.exercises.exercise import FIRST
from attnbook.exercises.guard import preserve_state
from attnbook.exercises.tolerance import RandomRounding
from workshop.book.mistakes import list_entries

DIAGNOSES = {
    ("encoder_decoder", "check_encoder_fault"),
    ("bahdanau", "check_decoder_fault"),
    ("luong", "check_attention_fault"),
    ("scaled_dot_product", "check_attention_fault"),
    ("self_attention", "check_attention_fault"),
    ("multi_head", "check_layer_fault"),
    ("masks", "check_mask_fault"),
    ("masks", "check_packed_model"),
    ("masks", "check_no_leak"),
    ("positions", "check_rotary_fault"),
    ("transformer", "check_block_fault"),
    ("flash_attention", "check_tiled_fault"),
    ("efficient_attention", "check_linear_fault"),
    ("reading_heads", "check_ablation_fault"),
    ("beyond_text", "check_graph_fault"),
}
SEEDS = range(FIRST, FIRST + 5)
WIDER = 2 * 3**0.5  # attnbook.exercises.tolerance derives it
# In this exercise one model adds large numbers and takes them away again: its
# rounding is meant to be close to what a leak changes.
PROVOKED = "with a model that is causal up to rounding"


def measure_distance(a, b, rtol=1e-5, atol=1e-8):
    """Return the largest difference in terms of what `allclose` allows."""
    a, b = a.double(), b.double()
    far = (a - b).abs() / (atol + rtol * b.abs())
    return float(far.masked_fill(a == b, 0.0).nan_to_num(torch.inf).max())


@cache
def compared(exercise, seed, drawn):
    """Return of every comparison of the solution: the case, and a distance."""
    found = []

    def noted(a, b, **more):
        distance = measure_distance(a, b, **more) / (WIDER if drawn else 1.0)
        found.append((case.tries, distance))
        return distance <= 1

    with preserve_state(), mock.patch("torch.allclose", noted):
        for case in exercise.draw_cases(seed):
            given = [copy_input(x) for x in case.inputs]
            if drawn:
                # Every number is rounded in its own precision.
                with RandomRounding(torch.float64, seed):
                    exercise.solution(*given)
            else:
                exercise.solution(*given)
    return found


entries = [x for x in list_entries() if (x.module, x.name) in DIAGNOSES]
each = pytest.mark.parametrize(
    "exercise",
    [pytest.param(x.exercise, id=f"{x.module}, {x.name}") for x in entries],
)


def test_every_diagnosis_is_among_the_exercises():
    assert {(x.module, x.name) for x in entries} == DIAGNOSES


@pytest.mark.long
@pytest.mark.precision
@each
def test_what_rounding_and_a_fault_change_differ_from_the_bound(exercise):
    every = [x for seed in SEEDS for x in compared(exercise, seed, False)]
    equal = [x for _, x in every if x <= 1]
    different = [x for _, x in every if x > 1]
    assert max(equal) <= 1 / 5
    assert min(different) >= 5


@pytest.mark.long
@pytest.mark.precision
@each
def test_no_random_rounding_passes_the_bound(exercise):
    """All comparisons come out as they do without random rounding."""
    seen = 0
    for seed in SEEDS[:2]:
        plain, drawn = (compared(exercise, seed, x) for x in (False, True))
        for title in {t for t, _ in plain if t != PROVOKED}:
            one, two = ([x for t, x in y if t == title] for y in (plain, drawn))
            assert len(one) == len(two), title
            assert all((a > 1) == (b > 1) for a, b in zip(one, two, strict=True))
            seen += len(one)
    assert seen
