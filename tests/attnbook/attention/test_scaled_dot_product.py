import math

import pytest
import torch

from attnbook.attention.scaled_dot_product import attend, attention_weights

SEED = torch.Generator().manual_seed(0)
QUERY = torch.randn(2, 3, 7, generator=SEED, dtype=torch.float64)
KEY = torch.randn(2, 5, 7, generator=SEED, dtype=torch.float64)
VALUE = torch.randn(2, 5, 11, generator=SEED, dtype=torch.float64)


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


MASK = torch.tensor(
    [[1, 1, 0, 0, 1], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]], dtype=torch.bool
)
BIAS = torch.randn(3, 5, generator=SEED, dtype=torch.float64)


@pytest.mark.parametrize(
    ("mask", "bias", "scale"),
    [(None, None, None), (MASK, None, 0.5), (None, BIAS, None), (MASK, BIAS, 0.5)],
    ids=["plain", "mask and scale", "bias", "all"],
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


def test_leading_axes_broadcast():
    one_key = attend(QUERY[:, None], KEY[0], VALUE[0])
    assert one_key.shape == (2, 1, 3, 11)
    torch.testing.assert_close(one_key[1, 0], attend(QUERY[1:], KEY[:1], VALUE[:1])[0])


def test_gradients_pass_gradcheck_with_an_empty_row():
    inputs = [x.clone().requires_grad_() for x in (QUERY, KEY, VALUE)]
    assert torch.autograd.gradcheck(lambda q, k, v: attend(q, k, v, MASK, BIAS), inputs)


def test_half_precision_survives_products_beyond_its_range():
    query = torch.full((1, 64), 100.0, dtype=torch.float16)
    key = torch.stack([query[0], query[0] * 0.99])
    assert (query @ key.T).isinf().any()
    weights = attention_weights(query, key, scale=1 / 64**0.5 / 10)
    assert weights.isfinite().all()
    assert weights[0, 0] > weights[0, 1]


def test_a_single_key_gets_all_the_weight():
    weights = attention_weights(QUERY, KEY[:, :1])
    assert (weights == 1).all()


@pytest.mark.refusal
def test_inputs_of_unequal_sizes_are_refused():
    with pytest.raises(ValueError, match="queries are 7 wide but keys are 6"):
        attend(QUERY, KEY[..., :6], VALUE)
    with pytest.raises(ValueError, match="there are 5 keys but 4 values"):
        attend(QUERY, KEY, VALUE[:, :4])
    with pytest.raises(ValueError, match="must be boolean"):
        attend(QUERY, KEY, VALUE, mask=MASK.double())
    with pytest.raises(ValueError, match="does not broadcast"):
        attend(QUERY, KEY, VALUE, mask=MASK[:, :4])
