"""Attention with normalised queries and keys, or with capped scores."""

import math
from functools import partial

import pytest
import torch

from attnbook.masks import causal
from attnbook.models.transformer import (
    QKNormAttention,
    SoftCapAttention,
    soft_cap,
)

B, T, C, H = 2, 5, 12, 3


@pytest.fixture(autouse=True)
def seed():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        yield


def test_a_soft_cap_keeps_small_scores_and_stops_large_ones():
    scores = torch.tensor([-1e4, -0.01, 0.0, 0.01, 1e4])
    capped = soft_cap(scores, 10.0)
    torch.testing.assert_close(capped[1:4], scores[1:4], rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(capped[[0, 4]], torch.tensor([-10.0, 10.0]))
    assert (soft_cap(torch.linspace(-30, 30, 61), 10.0).diff() > 0).all()


def scores_of(attention, x):
    query, key, _ = attention.project(x, x)
    return attention.scores(query, key)


def test_qk_norm_removes_the_scale_of_queries_and_keys():
    attention, x = QKNormAttention(C, H), torch.randn(B, T, C)
    before = scores_of(attention, x)
    assert before.abs().max() <= math.sqrt(C / H)
    with torch.no_grad():
        for part in (attention.query, attention.key):
            part.weight.mul_(1000)
            part.bias.mul_(1000)
    torch.testing.assert_close(scores_of(attention, x), before, atol=1e-3, rtol=1e-3)


def test_no_score_passes_the_cap():
    attention = SoftCapAttention(C, H, 2.0)
    x = 100 * torch.randn(B, T, C)
    assert scores_of(attention, x).abs().max() <= 2


@pytest.mark.parametrize("build", [QKNormAttention, partial(SoftCapAttention, cap=2.0)])
def test_masked_out_positions_have_no_effect(build):
    attention, x = build(C, H), torch.randn(B, T, C)
    mask = causal(T, T)
    other = x.clone()
    other[:, -1] = 50
    torch.testing.assert_close(
        attention(x, mask=mask)[:, :-1], attention(other, mask=mask)[:, :-1]
    )
    nothing = attention(x, mask=torch.zeros_like(mask))
    torch.testing.assert_close(nothing, attention.output.bias.expand(B, T, C))


@pytest.mark.refusal
@pytest.mark.parametrize("cap", [0.0, -1.0, math.nan])
def test_a_cap_that_is_not_positive_is_refused(cap):
    with pytest.raises(ValueError, match="the cap must be above 0"):
        soft_cap(torch.zeros(2), cap)
