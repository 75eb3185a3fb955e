"""Weights, gradients and masks of softmax attention as the formulas read."""

import math

import pytest
import torch

from attnbook.attention.masked_softmax import masked_softmax
from attnbook.attention.scaled_dot_product import (
    attend,
    attend_gradient,
    attention_weights,
)
from precision import draw

QUERY, KEY, VALUE, BIAS = draw((2, 3, 7), (2, 5, 7), (2, 5, 11), (3, 5))
MASK = torch.tensor(
    [[1, 1, 0, 0, 1], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]], dtype=torch.bool
)


def by_hand(b, t, mask=None, bias=None, scale=7**-0.5):
    """Return the weights of one query as the formula reads, in floats."""
    scores = []
    for s in range(5):
        score = scale * sum(
            float(x) * float(y) for x, y in zip(QUERY[b, t], KEY[b, s], strict=True)
        )
        score += 0.0 if bias is None else float(bias[t, s])
        scores.append(score)
    seen = [s for s in range(5) if mask is None or mask[t, s]]
    total = sum(math.exp(scores[s]) for s in seen)
    return [math.exp(scores[s]) / total if s in seen else 0 for s in range(5)]


@pytest.mark.parametrize(
    ("mask", "bias", "scale"),
    [(None, None, None), (MASK, None, 0.5), (MASK, BIAS, None)],
    ids=["plain", "mask and scale", "mask and bias"],
)
def test_weights_are_the_formula(mask, bias, scale):
    ours = attention_weights(QUERY, KEY, mask, bias, scale)
    for b in range(2):
        for t in range(3):
            if mask is not None and not mask[t].any():
                assert (ours[b, t] == 0).all()
                continue
            hand = by_hand(b, t, mask, bias, scale or 7**-0.5)
            torch.testing.assert_close(
                ours[b, t], torch.tensor(hand, dtype=torch.float64)
            )
    output = attend(QUERY, KEY, VALUE, mask, bias, scale)
    torch.testing.assert_close(output, ours @ VALUE)


def test_half_precision_survives_products_beyond_its_range():
    query = torch.full((1, 64), 100.0, dtype=torch.float16)
    key = torch.stack([query[0], query[0] * 0.99])
    assert (query @ key.T).isinf().any()
    weights = attention_weights(query, key, scale=1 / 64**0.5 / 10)
    assert weights.isfinite().all()
    assert weights[0, 0] > weights[0, 1]


@pytest.mark.refusal
def test_inputs_of_unequal_sizes_are_refused():
    with pytest.raises(ValueError, match="queries are 7 wide but keys are 6"):
        attend(QUERY, KEY[..., :6], VALUE)
    with pytest.raises(ValueError, match="there are 5 keys but 4 values"):
        attend(QUERY, KEY, VALUE[:, :4])
    with pytest.raises(ValueError, match=r"\(2, 3, 7\) but the output \(2, 3, 11\)"):
        attend_gradient(QUERY, KEY, VALUE, torch.ones(2, 3, 7))


# Masked softmax.


def test_weights_depend_on_unmasked_scores_alone_and_nothing_changes_in_place():
    scores = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([True, False, True, True, False])
    expected = scores[..., mask].softmax(-1)
    scores[..., 1] = 1e30
    before = scores.clone(), mask.clone()
    weights = masked_softmax(scores, mask)
    torch.testing.assert_close(weights[..., mask], expected)
    assert (weights[..., ~mask] == 0).all()
    assert all(map(torch.equal, (scores, mask), before))


def test_an_empty_row_gives_zeros_and_finite_gradients():
    scores = torch.full((2, 3), 1e4, requires_grad=True)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    weights = masked_softmax(scores, mask)
    assert weights.tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]
    (weights * torch.tensor([[1.0, 2.0, 3.0]])).sum().backward()
    assert scores.grad.isfinite().all()
    assert (scores.grad[1] == 0).all()
    assert (scores.grad[0, :2] != 0).all()


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(3), "must be boolean.*but is torch.float32"),
        (torch.ones(4).bool(), r"\(4,\) does not broadcast.*\(2, 3\)"),
        (torch.ones(5, 2, 3).bool(), r"\(5, 2, 3\) does not broadcast"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(mask, message):
    with pytest.raises(ValueError, match=message):
        masked_softmax(torch.zeros(2, 3), mask)


# The gradients that chapter 4 derives.

T, S, D, E = 5, 7, 11, 13
GRADIENTS = {
    "scale": ((T, D), (S, D), (S, E), {"scale": 0.7}),
    "broadcast": ((2, 3, T, D), (2, 1, S, D), (1, 1, S, E), {}),
    "one key": ((2, 1, D), (2, 1, D), (2, 1, E), {}),
}


@pytest.mark.parametrize("case", GRADIENTS)
def test_the_derived_gradients_equal_autograd(case):
    *shapes, options = GRADIENTS[case]
    plain = draw(*shapes)
    inputs = [x.clone().requires_grad_() for x in plain]
    output = attend(*inputs, **options)
    upstream = torch.randn_like(output)
    found = attend_gradient(*plain, upstream, **options)
    wanted = torch.autograd.grad(output, inputs, upstream)
    torch.testing.assert_close([*found], [*wanted])
