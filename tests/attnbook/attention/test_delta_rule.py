"""The delta rule: its two forms against the product of matrices of the paper.

Forwards and backwards with a random upstream gradient; without a decay, with one
for each head and with one for each channel.
"""

from itertools import product

import pytest
import torch
from torch.nn import functional as F

from attnbook.attention.delta_rule import (
    attend_delta_chunked,
    attend_delta_recurrent,
    step_delta,
)
from precision import assert_equals_reference, draw, each_dtype

B, H, D, E = 2, 3, 5, 7


def draw_inputs(T, decay=0, rate=1.0):
    """Return query, key, value, beta, perhaps log_decay, and an upstream gradient.

    A head has 0, 1 or D decays, by a factor of about exp(-rate) a position.
    """
    more = [(decay,)] * bool(decay)
    query, key, value, beta, *decays, upstream = draw(
        *((B, H, T, *s) for s in ((D,), (D,), (E,), (), *more, (E,)))
    )
    key, beta = F.normalize(key, dim=-1), 2 * beta.sigmoid()
    decays = [-rate * x.square() for x in decays]
    return query, key, value, beta, *decays, upstream


def formula(query, key, value, beta, log_decay=None):
    """state ← (I - β key keyᵀ) decay state + β key valueᵀ."""
    rows, state = [], None
    for t in range(query.shape[2]):
        k, v = key[:, :, t, :, None], value[:, :, t, None, :]
        write = beta[:, :, t, None, None] * k
        if state is None:
            state = write @ v
        else:
            if log_decay is not None:
                state = log_decay[:, :, t, :, None].exp() * state
            state = state - write @ (k.mT @ state) + write @ v
        rows.append(query[:, :, t, None, :] @ state)
    return torch.cat(rows, dim=2)


def outputs(function, **more):
    return lambda *x: function(*x, **more).output


def continued(*inputs):
    """Two parts, the second with the state that the first one left."""
    first = attend_delta_chunked(*(x[:, :, :5] for x in inputs), chunk=3)
    rest = [x[:, :, 5:] for x in inputs]
    second = attend_delta_chunked(*rest, state=first.state, chunk=4)
    return torch.cat([first.output, second.output], dim=2)


FORMS = {
    "recurrent": outputs(attend_delta_recurrent),
    "chunked": outputs(attend_delta_chunked),
    "chunks of 4": outputs(attend_delta_chunked, chunk=4),
    "in two parts": continued,
}
CASES = {
    "one position": (1, 0, 1.0),
    "a whole number of chunks": (12, 0, 1.0),
    "a decay for each head": (13, 1, 1.0),
    "decays that would overflow if they were divided by": (11, 1, 90.0),
    "a decay for each channel": (13, D, 1.0),
}


@pytest.mark.parametrize(
    ("name", "case"),
    [
        *product(["recurrent"], CASES),
        *product(["chunks of 4", "in two parts"], [*CASES][:-1]),
    ],
)
def test_every_form_equals_the_formula(name, case):
    *inputs, upstream = (x.float() for x in draw_inputs(*CASES[case]))
    assert_equals_reference(FORMS[name], formula, inputs, upstream)


@each_dtype
@pytest.mark.parametrize("name", ["recurrent", "chunked"])
def test_the_forms_equal_the_formula_in_every_precision(name, dtype):
    *inputs, upstream = (x.to(dtype) for x in draw_inputs(11, 1))
    assert_equals_reference(FORMS[name], formula, inputs, upstream)


def test_beta_of_one_replaces_a_value_zero_keeps_it_and_two_reflects_it():
    key = F.normalize(torch.randn(1, 1, 4, generator=torch.manual_seed(0)), dim=-1)
    old, new = torch.full((1, 1, 3), 5.0), torch.tensor([[[1.0, 2.0, 3.0]]])
    state = key[..., None] * old[..., None, :]
    for beta, expected in (1.0, new), (0.0, old), (2.0, 2 * new - old):
        found = step_delta(state, key, key, new, torch.full((1, 1), beta))
        torch.testing.assert_close(found.output, expected)
    assert torch.equal(state, key[..., None] * old[..., None, :])


def test_a_step_is_one_position_of_the_recurrence():
    query, key, value, beta, decay, _ = draw_inputs(7, D)
    whole = attend_delta_recurrent(query, key, value, beta, decay)
    state = torch.zeros(B, H, D, E).double()
    for t in range(7):
        inputs = (x[:, :, t] for x in (query, key, value, beta, decay))
        output, state = step_delta(state, *inputs)
        torch.testing.assert_close(output, whole.output[:, :, t])
    torch.testing.assert_close(state, whole.state)


def test_a_memory_can_be_forgotten_altogether():
    *inputs, _ = draw_inputs(9, 1)
    inputs[4][:, :, 6] = -torch.inf
    leaves = [x.requires_grad_() for x in inputs]
    found = attend_delta_chunked(*leaves, chunk=4).output[:, :, 6:]
    rest = [x[:, :, 6:] for x in leaves]
    torch.testing.assert_close(found, attend_delta_recurrent(*rest).output)
    for x in torch.autograd.grad(found.sum(), leaves):
        assert x.isfinite().all()


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("i", "change", "message"),
    [
        (3, lambda x: x + 2, "beta must be between 0 and 2, but is between 2"),
        (3, lambda x: x[:, :, 1:], r"beta have the shape \(2, 3, 4\)"),
        (4, lambda x: x + 5, "log_decay must be at most 0, but is up to"),
        (1, lambda x: x.float(), "query is torch.float64 .* key is torch.float32"),
        (2, lambda x: x[:, :, 1:], "5 keys but 4 values"),
        (2, lambda x: x[:1], r"values have the shape \(1, 3, 5\) .* \(2, 3, 5\)"),
        (
            5,
            lambda _: torch.zeros(B, H, E, D),
            r"the state has the shape \(2, 3, 7, 5\), .* \(2, 3, 5, 7\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(i, change, message):
    inputs = [*draw_inputs(5, 1)[:5], None]
    inputs[i] = change(inputs[i])
    for form in attend_delta_chunked, attend_delta_recurrent:
        with pytest.raises(ValueError, match=message):
            form(*inputs)


@pytest.mark.refusal
def test_a_step_and_a_chunk_that_do_not_fit_are_refused():
    query, key, value, beta, _ = draw_inputs(5)
    first = [x[:, :, 0] for x in (query, key, value, beta)]
    with pytest.raises(ValueError, match=r"state has the shape \(2, 3, 7, 5\)"):
        step_delta(torch.zeros(B, H, E, D), *first)
    with pytest.raises(ValueError, match="at least 1 position, not 0"):
        attend_delta_chunked(query, key, value, beta, chunk=0)
    with pytest.raises(ValueError, match="1 decay here, not 5"):
        attend_delta_chunked(query, key, value, beta, -query.abs())
    with pytest.raises(ValueError, match="3 columns, but must have 1 or"):
        attend_delta_recurrent(query, key, value, beta, -query[..., :3].abs())


@pytest.mark.compiled
@pytest.mark.parametrize("function", [attend_delta_recurrent, attend_delta_chunked])
def test_the_checks_of_values_break_no_graph(function):
    *inputs, decay, _ = draw_inputs(5, 1)
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*inputs, decay), function(*inputs, decay))


def test_the_checks_of_values_read_nothing_from_another_device():
    """On the device "meta" there is nothing to read."""
    *inputs, decay, _ = (x.to("meta") for x in draw_inputs(5, 1))
    assert attend_delta_chunked(*inputs, decay).output.shape == inputs[2].shape
