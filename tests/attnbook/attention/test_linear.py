"""Linear attention against their formulas.

Forwards and backwards with a random upstream gradient.
"""

import pytest
import torch

from attnbook import masks
from attnbook.attention.linear import (
    attend_linear,
    attend_linear_chunked,
    attend_linear_recurrent,
    elu_plus_one,
    step_linear,
)
from precision import assert_equals_reference, draw, each_dtype

B, H, D, E = 2, 3, 5, 7


def draw_inputs(T, S=None, dtype=torch.float64, spread=1.0, offset=0.0):
    """Return query, key, value and an upstream gradient."""
    S = T if S is None else S
    q, k, *more = draw(*((B, H, *s) for s in ((T, D), (S, D), (S, E), (T, E))))
    q, k = q * spread + offset, k * spread + offset
    return [x.to(dtype) for x in (q, k, *more)]


def formula(query, key, value, mask, features=elu_plus_one):
    """The sums of the paper, equation 4; an empty row gives zeros."""
    weights = features(query) @ features(key).mT
    weights = weights.masked_fill(~mask, 0.0)
    sums = weights.sum(-1, keepdim=True)
    sums = sums.masked_fill(~mask.any(-1, keepdim=True), 1.0)
    return weights @ value / sums


def causal_formula(query, key, value):
    T = query.shape[2]
    return formula(query, key, value, masks.causal(T, T))


def outputs(function, **more):
    return lambda *x: function(*x, **more).output


def continued(query, key, value):
    """Two parts, the second with the state that the first one left."""
    part = [x[..., :3, :] for x in (query, key, value)]
    rest = [x[..., 3:, :] for x in (query, key, value)]
    first = attend_linear_chunked(*part, chunk=2)
    second = attend_linear_recurrent(*rest, first.state, first.normalizer)
    return torch.cat([first.output, second.output], dim=-2)


FORMS = {
    "parallel": lambda *x: attend_linear(*x, masks.causal(*[x[0].shape[2]] * 2)),
    "recurrent": outputs(attend_linear_recurrent),
    "chunked": outputs(attend_linear_chunked),
    "chunks of 4": outputs(attend_linear_chunked, chunk=4),
    "in two parts": continued,
}
CASES = {
    "one position": {"T": 1},
    "a whole number of chunks": {"T": 12},
    "large": {"T": 7, "offset": 30.0},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "name", ["parallel", "recurrent", "chunks of 4", "in two parts"]
)
def test_every_causal_form_equals_the_formula(name, case):
    *inputs, upstream = draw_inputs(**CASES[case], dtype=torch.float32)
    assert_equals_reference(FORMS[name], causal_formula, inputs, upstream)


@each_dtype
@pytest.mark.parametrize("name", ["recurrent", "chunked"])
def test_the_causal_forms_equal_the_formula_in_every_precision(name, dtype):
    *inputs, upstream = draw_inputs(13, dtype=dtype)
    assert_equals_reference(FORMS[name], causal_formula, inputs, upstream)


def test_the_parallel_form_leaves_padding_out():
    *inputs, upstream = draw_inputs(7, 5)
    mask = masks.padding(torch.tensor([3, 0]), 5)
    assert_equals_reference(
        lambda *x: attend_linear(*x, mask),
        lambda *x: formula(*x, mask.expand(B, H, 7, 5)),
        inputs,
        upstream,
    )


def test_elu_plus_one_keeps_the_digits_of_small_features():
    x = torch.tensor([-20.0, -1.0, 0.0, 3.0])
    truth = torch.where(x > 0, x.double() + 1, x.double().exp())
    torch.testing.assert_close(elu_plus_one(x).double(), truth, rtol=1e-6, atol=0)
    x = torch.tensor([1e4, -1e4], requires_grad=True)
    elu_plus_one(x).sum().backward()
    assert x.grad.tolist() == [1, 0]


def test_features_that_vanish_give_zeros():
    query, key, value, _ = draw_inputs(5, dtype=torch.float32)
    for found in (
        attend_linear(query, key - 1e4, value),
        attend_linear_chunked(query, key - 1e4, value, chunk=2).output,
    ):
        assert torch.equal(found, torch.zeros_like(found))


def test_a_step_is_one_position_of_the_recurrence_and_changes_no_state():
    query, key, value, _ = draw_inputs(9)
    whole = attend_linear_chunked(query, key, value)
    states = torch.zeros(B, H, D, E).double(), torch.zeros(B, H, D).double()
    for t in range(9):
        before = [x.clone() for x in states]
        output, *new = step_linear(*states, *(x[:, :, t] for x in (query, key, value)))
        assert all(map(torch.equal, states, before))
        states = new
        torch.testing.assert_close(output, whole.output[:, :, t])
    torch.testing.assert_close(states, [whole.state, whole.normalizer])


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda q, k, v: attend_linear_chunked(q, k, v, chunk=0),
            "a chunk has at least 1 position, not 0",
        ),
        (
            lambda q, k, v: attend_linear_chunked(q[..., :2, :], k, v),
            "there are 2 queries and 5 keys",
        ),
        (
            lambda q, k, v: attend_linear_recurrent(
                q, k, v, torch.zeros(B, H, E, D), torch.zeros(B, H, D)
            ),
            r"the state has the shape \(2, 3, 7, 5\), .* \(2, 3, 5, 7\)",
        ),
        (
            lambda q, k, v: attend_linear_chunked(q, k, v, torch.zeros(B, H, D, E)),
            r"state is \(2, 3, 5, 7\) and that of the normalizer None",
        ),
        (
            lambda q, k, v: attend_linear_recurrent(q, k.to("meta"), v),
            r"the query is torch.float64 on cpu, but the key is .* on meta",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(*draw_inputs(5)[:3])
