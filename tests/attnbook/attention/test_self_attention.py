import pytest
import torch

from attnbook.attention.self_attention import (
    causal_mask,
    causal_self_attention,
    cross_attention,
    self_attention,
)

SEED = torch.Generator().manual_seed(0)


def drawn(*shape):
    return torch.randn(*shape, generator=SEED, dtype=torch.float64)


X, MEMORY = drawn(2, 5, 7), drawn(2, 3, 11)
W_QUERY, W_KEY, W_VALUE = drawn(13, 7), drawn(13, 7), drawn(17, 7)


def test_cross_attention_is_the_formula_for_every_position():
    key, value = drawn(13, 11), drawn(17, 11)
    output = cross_attention(X, MEMORY, W_QUERY, key, value)
    for b in range(2):
        for t in range(5):
            query = W_QUERY @ X[b, t]
            scores = torch.stack([query @ key @ m for m in MEMORY[b]])
            weights = (scores / 13**0.5).softmax(0)
            expected = sum(
                w * (value @ m) for w, m in zip(weights, MEMORY[b], strict=True)
            )
            torch.testing.assert_close(output[b, t], expected)


def test_self_attention_is_equivariant_to_order_and_causal_is_not():
    order = torch.tensor([3, 0, 4, 1, 2])
    moved = self_attention(X[:, order], W_QUERY, W_KEY, W_VALUE)
    still = self_attention(X, W_QUERY, W_KEY, W_VALUE)
    torch.testing.assert_close(moved, still[:, order])
    moved = causal_self_attention(X[:, order], W_QUERY, W_KEY, W_VALUE)
    still = causal_self_attention(X, W_QUERY, W_KEY, W_VALUE)
    assert not torch.allclose(moved, still[:, order])


def test_causal_outputs_depend_on_earlier_positions_alone():
    whole = causal_self_attention(X, W_QUERY, W_KEY, W_VALUE)
    for t in range(1, 6):
        part = self_attention(X[:, :t], W_QUERY, W_KEY, W_VALUE)
        torch.testing.assert_close(whole[:, t - 1], part[:, -1])


def test_a_causal_mask_is_aligned_at_the_bottom_right():
    assert causal_mask(2, 4).int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert causal_mask(3, 2).int().tolist() == [[0, 0], [1, 0], [1, 1]]
    assert causal_mask(1, 1).all()


@pytest.mark.refusal
def test_projections_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="W_key takes width 7 but gets 11"):
        cross_attention(X, MEMORY, W_QUERY, W_KEY, W_VALUE)
    with pytest.raises(ValueError, match="W_query takes width 7 but gets 11"):
        self_attention(MEMORY, W_QUERY, W_KEY, W_VALUE)
