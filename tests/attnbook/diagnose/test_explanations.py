"""Measures of importance on models whose truth is known by construction."""

import math

import pytest
import torch
from torch import nn

from attnbook.diagnose.explanations import (
    find_adversarial_weights,
    jensen_shannon,
    measure_erasure,
    measure_naming,
    multiply_gradient_by_input,
    multiply_weights_by_norms,
    total_variation,
)

RNG = torch.Generator().manual_seed(0)
WORDS = torch.tensor([[3, 1, 4, 2], [1, 1, 5, 9]])


def count_fours(words):
    """Return two classes: the share of fours, and the rest."""
    share = (words == 4).float().mean(-1)
    return torch.stack([share, 1 - share], dim=-1)


def test_erasure_is_the_change_of_the_output_without_a_word():
    found = measure_erasure(count_fours, WORDS, count_fours(WORDS))
    gone, kept = 1 / 4, 1 / 3 - 1 / 4
    expected = torch.tensor([[kept, kept, gone, kept], [0.0] * 4])
    torch.testing.assert_close(found, expected)


class Weighted(nn.Module):
    """Class 0 has probability 1/2 plus a weighted sum of the embeddings."""

    def __init__(self, weights):
        super().__init__()
        self.embed = nn.Embedding(10, 1)
        with torch.no_grad():
            self.embed.weight.copy_(torch.arange(10.0)[:, None] / 100)
        self.weights = weights

    def forward(self, words):
        first = 0.5 + self.embed(words)[..., 0] @ self.weights
        return torch.stack([first, 1 - first], dim=-1)


def test_gradient_times_input_is_exact_for_a_linear_model():
    weights = torch.tensor([0.1, 2.0, 0.3, 0.4])
    model = Weighted(weights)
    expected = WORDS / 100 * weights
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            found = multiply_gradient_by_input(model.embed, lambda: model(WORDS))
        torch.testing.assert_close(found, expected)
        assert not found.requires_grad
    assert model.embed.weight.grad is None
    assert not model.embed._forward_hooks


def test_weights_times_norms_by_hand():
    values = torch.tensor([[[0.3, 0.4], [3.0, 4.0]]])
    found = multiply_weights_by_norms(torch.tensor([[0.75, 0.25]]), values)
    torch.testing.assert_close(found, torch.tensor([[0.375, 1.25]]))


def test_naming_is_the_share_of_sequences_whose_first_word_is_the_evidence():
    importance = torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.7, 0.3]])
    assert measure_naming(importance, torch.tensor([1, 0, 1])) == 2 / 3


def make_reader(values):
    """Return a reader: the weighted mean of each word's distribution."""
    return lambda weights: (weights[:, None] @ values)[:, 0]


ONLY = torch.tensor([[[0.9, 0.1], [0.1, 0.9], [0.1, 0.9]]])
TWINS = torch.tensor([[[0.9, 0.1], [0.9, 0.1], [0.1, 0.9]]])
POINTED = torch.tensor([[0.98, 0.01, 0.01]])


def test_adversarial_weights_exist_only_if_another_word_says_the_same():
    """With a second word of the same class, the search moves to it."""
    for values, least, most in ((ONLY, 0.0, 0.02), (TWINS, 0.6, math.log(2))):
        read = make_reader(values)
        found = find_adversarial_weights(read, POINTED, RNG, steps=150)
        torch.testing.assert_close(found.sum(-1), torch.ones(1))
        assert total_variation(read(found), read(POINTED)) <= 0.01
        assert least <= float(jensen_shannon(found, POINTED)) <= most
    assert int(found.argmax()) == 1


@pytest.mark.refusal
def test_a_change_that_is_no_distance_is_refused():
    with pytest.raises(ValueError, match=r"between 0 and 1, not 1\.0"):
        find_adversarial_weights(make_reader(ONLY), POINTED, RNG, 1.0)
