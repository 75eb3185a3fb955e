"""The indexer scores as in its formula and learns the mean weights."""

import pytest
import torch

from attnbook.attention.self_attention import causal_mask
from attnbook.attention.sparse import (
    LightningIndexer,
    compute_indexer_loss,
)
from attnbook.positions.rotary import rotate

B, H, J, T, C, D = 2, 5, 3, 7, 11, 8


def build():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LightningIndexer(C, J, D), torch.randn(B, T, C)


def turn(x, t):
    first = rotate(x[None, None, None, : D // 2], torch.tensor([t]))
    return torch.cat([first[0, 0, 0], x[D // 2 :]])


@torch.no_grad()
def test_a_score_is_the_weighted_sum_over_the_heads():
    indexer, x = build()
    found = indexer(x)
    assert found.shape == (B, T, T)
    for t in (0, 3, T - 1):
        for s in range(T):
            key = turn(indexer.norm(indexer.key(x[1, s])), s)
            queries = indexer.query(x[1, t]).reshape(J, D)
            weights = indexer.weight(x[1, t])
            wanted = sum(
                float(w * torch.relu(turn(q, t) @ key))
                for w, q in zip(weights, queries, strict=True)
            )
            wanted /= (J * D) ** 0.5
            assert float(found[1, t, s]) == pytest.approx(wanted, abs=1e-5)


@torch.no_grad()
def test_some_queries_are_scored_as_among_all():
    indexer, x = build()
    rows = torch.tensor([5, 0, 2])
    torch.testing.assert_close(indexer(x, rows), indexer(x)[:, rows])


def test_the_loss_is_the_divergence_from_the_mean_weights():
    rng = torch.Generator().manual_seed(0)
    mask = causal_mask(T, T)
    scores = torch.randn(B, T, T, generator=rng)
    weights = torch.randn(B, H, T, T, generator=rng)
    weights = weights.masked_fill(~mask, -torch.inf).softmax(-1)
    found = compute_indexer_loss(scores, weights, mask)
    total = 0.0
    for b in range(B):
        for t in range(T):
            target = weights[b, :, t, : t + 1].mean(0)
            guess = scores[b, t, : t + 1].softmax(-1)
            total += float((target * (target / guess).log()).sum())
    assert float(found) == pytest.approx(total / B / T, rel=1e-4)


def test_the_loss_of_the_right_scores_is_zero_and_weights_of_zero_count():
    mask = causal_mask(T, T)
    weights = torch.zeros(B, H, T, T)
    weights[..., 0] = 1.0
    scores = torch.full((B, T, T), -100.0)
    scores[..., 0] = 100.0
    scores.requires_grad_()
    loss = compute_indexer_loss(scores, weights, mask)
    assert float(loss.detach()) == pytest.approx(0.0, abs=1e-6)
    loss.backward()
    assert scores.grad.isfinite().all()


def test_training_brings_the_scores_nearer_to_the_weights():
    indexer, x = build()
    mask = causal_mask(T, T)
    rng = torch.Generator().manual_seed(1)
    weights = 3 * torch.randn(B, H, T, T, generator=rng)
    weights = weights.masked_fill(~mask, -torch.inf).softmax(-1)
    optimizer = torch.optim.Adam(indexer.parameters(), 1e-2)
    losses = []
    for _ in range(60):
        loss = compute_indexer_loss(indexer(x), weights, mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 2


@pytest.mark.refusal
def test_impossible_sizes_are_refused():
    with pytest.raises(ValueError, match="multiple of 4, not 6"):
        LightningIndexer(C, J, 6)
    with pytest.raises(ValueError, match="heads must be at least 1, but is 0"):
        LightningIndexer(C, 0, D)
