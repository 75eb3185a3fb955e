"""Our linear attention and delta rules equal those of flash-linear-attention.

Its plain versions (`naive.py`) are read from their files, because importing
the package needs Triton and a GPU. They compute in single precision. "Equal"
means that the largest difference is below 10⁻⁵ of the largest number.
"""

import importlib.util
from functools import cache
from pathlib import Path

import pytest
from torch.nn import functional as F

from attnbook.attention.delta_rule import attend_delta_chunked, attend_delta_recurrent
from attnbook.attention.linear import (
    attend_linear_chunked,
    attend_linear_recurrent,
    elu_plus_one,
)
from precision import draw, measure_difference, run_with_gradients

B, H, T, D, E, LIMIT = 2, 3, 128, 16, 8, 1e-5


@cache
def read_naive(folder):
    """Return the module of plain versions in a folder of `fla.ops`."""
    found = importlib.util.find_spec("fla")
    path = Path(found.submodule_search_locations[0], "ops", folder, "naive.py")
    spec = importlib.util.spec_from_file_location(f"naive_{folder}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def draw_inputs(decay=0):
    """Return query, key, value, beta and log_decay, and an upstream gradient.

    A head has 0, 1 or D decays.
    """
    more = [(decay,)] * bool(decay)
    query, key, value, beta, *decays, upstream = (
        x.float()
        for x in draw(*((B, H, T, *s) for s in ((D,), (D,), (E,), (), *more, (E,))))
    )
    inputs = [query, F.normalize(key, dim=-1), value, beta.sigmoid()]
    return [*inputs, *(-0.1 * x.square() for x in decays), upstream]


def swap(x):
    """Exchange the axes of heads and positions: theirs are (B, T, H, ...)."""
    return x.transpose(1, 2)


def their_linear(form):
    def call(query, key, value):
        phi = (elu_plus_one(x) for x in (query, key))
        naive = getattr(read_naive("linear_attn"), form)
        found = naive(*map(swap, (*phi, value)), scale=1.0, normalize=True)
        return swap(found[0] if isinstance(found, tuple) else found)

    return call


def their_delta(form):
    def call(query, key, value, beta):
        naive = getattr(read_naive("delta_rule"), form)
        return naive(query * D**0.5, key, value, beta)[0]

    return call


def their_decay(folder, form):
    def call(query, key, value, beta, log_decay):
        if folder == "gated_delta_rule":
            log_decay = log_decay[..., 0]
        naive = getattr(read_naive(folder), form)
        found, _ = naive(
            *map(swap, (query, key, value)),
            beta=swap(beta),
            g=swap(log_decay),
            scale=1.0,
        )
        return swap(found)

    return call


def output(function):
    return lambda *x: function(*x).output


LINEAR = [output(attend_linear_recurrent), output(attend_linear_chunked)]
DELTA = [output(attend_delta_recurrent), output(attend_delta_chunked)]
# Name -> (theirs, ours, decays of a head).
PAIRS = {
    "linear, recurrent": (their_linear("naive_recurrent_linear_attn"), LINEAR, 0),
    "linear, chunked": (their_linear("naive_chunk_linear_attn"), LINEAR, 0),
    "delta rule, recurrent": (their_delta("delta_rule_recurrence"), DELTA, 0),
    "delta rule, chunked": (their_delta("delta_rule_chunkwise"), DELTA, 0),
    "gated, recurrent": (
        *(their_decay("gated_delta_rule", "naive_recurrent_gated_delta_rule"), DELTA),
        1,
    ),
    "gated, chunked": (
        *(their_decay("gated_delta_rule", "naive_chunk_gated_delta_rule"), DELTA),
        1,
    ),
    "KDA, recurrent": (their_decay("kda", "naive_recurrent_kda"), DELTA[:1], D),
}


@pytest.mark.parametrize("name", PAIRS)
def test_output_and_gradients_are_equal(name):
    theirs, ours, decay = PAIRS[name]
    *inputs, upstream = draw_inputs(decay)
    if ours is LINEAR:
        inputs = inputs[:3]
    expected = run_with_gradients(theirs, inputs, upstream)
    for form in ours:
        found = run_with_gradients(form, inputs, upstream)
        for pair in zip(found, expected, strict=True):
            assert measure_difference(*pair) < LIMIT


def test_final_states_are_equal():
    *inputs, _ = draw_inputs(D)
    theirs = read_naive("kda").naive_recurrent_kda(
        *map(swap, inputs[:3]),
        g=swap(inputs[4]),
        beta=swap(inputs[3]),
        scale=1.0,
        output_final_state=True,
    )
    found = attend_delta_recurrent(*inputs).state
    assert measure_difference(found, theirs[1]) < LIMIT
