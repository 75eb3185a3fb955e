"""Losses that move attention elsewhere, on numbers checked by hand."""

import math

import pytest
import torch

from attnbook.diagnose.explanations import (
    compute_adversary_loss,
    compute_deception_penalty,
    jensen_shannon,
    kullback_leibler,
    total_variation,
)

HALF, FIRST = torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0]])
SECOND = torch.tensor([[0.0, 1.0]])


def test_distances_of_two_distributions():
    assert float(total_variation(FIRST, SECOND)) == 1
    assert float(total_variation(HALF, FIRST)) == 0.5
    assert float(jensen_shannon(FIRST, SECOND)) == pytest.approx(math.log(2))
    assert float(jensen_shannon(HALF, HALF)) == pytest.approx(0)
    assert float(kullback_leibler(FIRST, HALF)) == pytest.approx(math.log(2))
    assert float(kullback_leibler(SECOND, FIRST)) > 50


def test_the_penalty_is_on_the_sum_of_forbidden_weights():
    weights = torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.5, 0.5]])
    forbidden = torch.tensor([[True, True, False], [True, False, False]])
    penalty = compute_deception_penalty(weights, forbidden)
    assert float(penalty) == pytest.approx(math.log(4) / 2)
    assert float(compute_deception_penalty(weights, ~forbidden)) > 0.1


def test_the_penalty_is_finite_where_all_weight_is_forbidden():
    scores = torch.tensor([[200.0, 0.0]], requires_grad=True)
    forbidden = torch.tensor([[True, False]])
    penalty = compute_deception_penalty(scores.softmax(-1), forbidden)
    penalty.backward()
    assert 10 < float(penalty.detach()) < 20
    assert scores.grad is not None and scores.grad.isfinite().all()


def test_the_adversary_wants_equal_outputs_and_other_weights():
    def loss(output, weights):
        return float(compute_adversary_loss(output, HALF, weights, HALF, strength=0.1))

    assert loss(HALF, HALF) == pytest.approx(0)
    assert loss(FIRST, HALF) == pytest.approx(0.5)
    assert loss(HALF, FIRST) == pytest.approx(-0.1 * math.log(2))
