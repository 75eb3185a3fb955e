"""Measures of importance on models whose truth is known by construction."""

import math

import pytest
import torch
from torch import nn

from attnbook.diagnose.explanations import (
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


def test_the_divergence_of_two_distributions_by_hand():
    one, other = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    assert float(jensen_shannon(one, other)) == pytest.approx(math.log(2))
    assert float(jensen_shannon(one, one)) == 0
    assert float(total_variation(one, torch.tensor([0.25, 0.75]))) == 0.75
