import pytest
import torch

from attnbook.attention.self_attention import (
    causal_mask,
    causal_self_attention,
    cross_attention,
    self_attention,
)
from precision import draw

X, MEMORY, W_QUERY, W_KEY, W_VALUE = draw(
    (2, 5, 7), (2, 3, 11), (13, 7), (13, 7), (17, 7)
)


def test_cross_attention_is_the_formula_for_every_position():
    key, value = draw((13, 11), (17, 11), seed=1)
    output = cross_attention(X, MEMORY, W_QUERY, key, value)
    for b in range(2):
        for t in range(5):
            query = W_QUERY @ X[b, t]
            scores = torch.stack([query @ key @ m for m in MEMORY[b]])
            weights = (scores / 13**0.5).softmax(0)
            expected = weights @ (MEMORY[b] @ value.T)
            torch.testing.assert_close(output[b, t], expected)


def test_causal_outputs_depend_on_earlier_positions_alone():
    whole = causal_self_attention(X, W_QUERY, W_KEY, W_VALUE)
    for t in range(1, 6):
        part = self_attention(X[:, :t], W_QUERY, W_KEY, W_VALUE)
        torch.testing.assert_close(whole[:, t - 1], part[:, -1])


def test_a_causal_mask_is_aligned_at_the_bottom_right():
    assert causal_mask(2, 4).int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert causal_mask(3, 2).int().tolist() == [[0, 0], [1, 0], [1, 1]]


@pytest.mark.refusal
def test_projections_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="W_key takes width 7 but gets 11"):
        cross_attention(X, MEMORY, W_QUERY, W_KEY, W_VALUE)
    with pytest.raises(ValueError, match="W_query takes width 7 but gets 11"):
        self_attention(MEMORY, W_QUERY, W_KEY, W_VALUE)
