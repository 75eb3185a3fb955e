"""Linear attention: all forms against the quadratic formula.

Forwards and backwards with a random upstream gradient, in four precisions.
"""

import pytest
import torch

from attnbook import masks
from attnbook.attention.linear import (
    attend_linear,
    attend_linear_bidirectional,
    attend_linear_chunked,
    attend_linear_recurrent,
    elu_plus_one,
    step_linear,
)
from attnbook.profiling.allocations import count_saved_bytes
from precision import assert_equals_reference, each_dtype

B, H, D, E = 2, 3, 5, 7


def draw(T, S=None, dtype=torch.float64, spread=1.0, offset=0.0):
    """Return query, key, value and an upstream gradient."""
    S = T if S is None else S
    rng = torch.Generator().manual_seed(100 * T + S)
    shapes = (T, D), (S, D), (S, E), (T, E)
    q, k, *more = (
        torch.randn(B, H, *s, generator=rng, dtype=torch.float64) for s in shapes
    )
    q, k = q * spread + offset, k * spread + offset
    return [x.to(dtype) for x in (q, k, *more)]


def formula(query, key, value, mask, features=elu_plus_one):
    """The sums of the paper, equation 4; an empty row gives zeros."""
    weights = features(query) @ features(key).mT
    weights = weights.masked_fill(~mask, 0.0)
    sums = weights.sum(-1, keepdim=True)
    sums = sums.masked_fill(~mask.any(-1, keepdim=True), 1.0)
    return weights @ value / sums


def outputs(function, **more):
    return lambda *x: function(*x, **more).output


def continued(query, key, value):
    """Two parts, the second with the state that the first one left."""
    part = [x[..., :3, :] for x in (query, key, value)]
    rest = [x[..., 3:, :] for x in (query, key, value)]
    first = attend_linear_chunked(*part, chunk=2)
    second = attend_linear_recurrent(*rest, first.state, first.normalizer)
    return torch.cat([first.output, second.output], dim=-2)


CAUSAL = {
    "parallel": lambda *x: attend_linear(*x, masks.causal(*[x[0].shape[2]] * 2)),
    "recurrent": outputs(attend_linear_recurrent),
    "chunked": outputs(attend_linear_chunked),
    "chunks of 4": outputs(attend_linear_chunked, chunk=4),
    "in two parts": continued,
}
CASES = {
    "one position": {"T": 1},
    "odd": {"T": 13},
    "a whole number of chunks": {"T": 12},
    "far apart": {"T": 11, "spread": 8.0},
    "large": {"T": 7, "offset": 30.0},
    "very negative": {"T": 7, "offset": -8.0},
}


def causal_formula(query, key, value):
    return formula(query, key, value, masks.causal(*[query.shape[2]] * 2))


def check_causal(name, case, dtype):
    *inputs, upstream = draw(**CASES[case], dtype=dtype)
    assert_equals_reference(CAUSAL[name], causal_formula, inputs, upstream)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "name", ["parallel", "recurrent", "chunks of 4", "in two parts"]
)
def test_every_causal_form_equals_the_formula(name, case):
    check_causal(name, case, torch.float32)


@each_dtype
@pytest.mark.parametrize("name", ["recurrent", "chunked"])
def test_the_causal_forms_equal_the_formula_in_every_precision(name, dtype):
    check_causal(name, "odd", dtype)


def some_mask(T, S):
    rng = torch.Generator().manual_seed(T)
    return torch.rand(B, H, T, S, generator=rng) < 0.5


def padded(S):
    """Padding of different lengths; one sequence is padding altogether."""
    return masks.padding(torch.tensor([S - 2, 0]), S)


BIDIRECTIONAL = {
    "all keys": (5, 11, lambda T, S: torch.ones(1, S).bool()),
    "padding, and an empty row": (7, 5, lambda T, S: padded(S)),
}


@pytest.mark.parametrize("case", BIDIRECTIONAL)
@pytest.mark.parametrize("way", [attend_linear, attend_linear_bidirectional])
def test_bidirectional_forms_equal_the_formula(way, case):
    T, S, make = BIDIRECTIONAL[case]
    *inputs, upstream = draw(T, S, torch.float32)
    mask = make(T, S)
    assert_equals_reference(
        lambda *x: way(*x, mask),
        lambda *x: formula(*x, mask.expand(B, H, T, S)),
        inputs,
        upstream,
    )


@each_dtype
def test_the_parallel_form_takes_any_mask(dtype):
    *inputs, upstream = draw(5, 11, dtype)
    mask = some_mask(5, 11)
    mask[0, 1, 2] = False
    assert_equals_reference(
        lambda *x: attend_linear(*x, mask),
        lambda *x: formula(*x, mask),
        inputs,
        upstream,
    )


FEATURES = {
    "elu + 1": elu_plus_one,
    "ReLU": lambda x: x.relu(),
    "wider": lambda x: torch.cat([elu_plus_one(x), elu_plus_one(-x)], -1),
}


@pytest.mark.parametrize("name", FEATURES)
def test_any_feature_map_can_be_used(name):
    *inputs, upstream = draw(11)
    leaves = [x.requires_grad_() for x in inputs]
    features = FEATURES[name]
    expected = attend_linear(*leaves, masks.causal(11, 11), features)
    grads = torch.autograd.grad(expected, leaves, upstream)
    assert not expected.isnan().any()
    for found in (
        attend_linear_recurrent(*leaves, features=features),
        attend_linear_chunked(*leaves, features=features, chunk=4),
    ):
        torch.testing.assert_close(found.output, expected)
        again = torch.autograd.grad(found.output, leaves, upstream)
        torch.testing.assert_close(again, grads)
        width = features(leaves[1]).shape[-1]
        assert found.state.shape == (B, H, width, E)
        assert found.normalizer.shape == (B, H, width)


def test_elu_plus_one_keeps_the_digits_of_small_features():
    x = torch.tensor([-20.0, -1.0, 0.0, 3.0])
    truth = torch.where(x > 0, x.double() + 1, x.double().exp())
    torch.testing.assert_close(elu_plus_one(x).double(), truth, rtol=1e-6, atol=0)
    x = torch.tensor([1e4, -1e4], requires_grad=True)
    elu_plus_one(x).sum().backward()
    assert x.grad.tolist() == [1, 0]


def test_features_that_vanish_give_zeros():
    query, key, value, _ = draw(5, dtype=torch.float32)
    for found in (
        attend_linear(query, key - 1e4, value),
        attend_linear_bidirectional(query, key - 1e4, value),
        attend_linear_chunked(query, key - 1e4, value, chunk=2).output,
    ):
        assert torch.equal(found, torch.zeros_like(found))


def test_a_step_is_one_position_of_the_recurrence():
    query, key, value, _ = draw(9)
    whole = attend_linear_chunked(query, key, value)
    state = torch.zeros(B, H, D, E).double()
    normalizer = torch.zeros(B, H, D).double()
    for t in range(9):
        before = state.clone(), normalizer.clone()
        inputs = (x[:, :, t] for x in (query, key, value))
        output, new, new_normalizer = step_linear(state, normalizer, *inputs)
        assert torch.equal(state, before[0])
        assert torch.equal(normalizer, before[1])
        state, normalizer = new, new_normalizer
        torch.testing.assert_close(output, whole.output[:, :, t])
    torch.testing.assert_close(state, whole.state)
    torch.testing.assert_close(normalizer, whole.normalizer)


def test_an_empty_sequence_leaves_the_state_alone():
    query, key, value, _ = (x[..., :0, :] for x in draw(3))
    state, normalizer = torch.ones(B, H, D, E), torch.ones(B, H, D)
    for form in attend_linear_recurrent, attend_linear_chunked:
        found = form(query, key, value, state.double(), normalizer.double())
        assert found.output.shape == (B, H, 0, E)
        assert torch.equal(found.state, state.double())


def test_the_memory_of_the_chunked_form_grows_with_the_length_alone():
    def saved(T):
        inputs = [x.requires_grad_() for x in draw(T)[:3]]

        def call():
            return attend_linear_chunked(*inputs, chunk=16).output

        return count_saved_bytes(call, inputs)

    assert saved(512) < 2.1 * saved(256)


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
            lambda q, k, v: attend_linear_chunked(
                q, k, v, torch.zeros(B, H, D, E), torch.zeros(B, H, E)
            ),
            r"the normalizer has the shape \(2, 3, 7\), .* \(2, 3, 5\)",
        ),
        (
            lambda q, k, v: attend_linear_chunked(q, k, v, torch.zeros(B, H, D, E)),
            r"state is \(2, 3, 5, 7\) and that of the normalizer None",
        ),
        (
            lambda q, k, v: attend_linear_bidirectional(q, k, v, masks.causal(5, 5)),
            "a mask has 1 row for all of them, not 5",
        ),
        (
            lambda q, k, v: attend_linear(q, k[..., :4], v),
            "queries are 5 wide but keys are 4",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_both_values(call, message):
    with pytest.raises(ValueError, match=message):
        call(*draw(5)[:3])
