"""Selected keys are those with the largest scores, and never masked ones."""

import pytest
import torch

from attnbook.attention.self_attention import causal_mask
from attnbook.attention.sparse import (
    score_mean_keys,
    select_top_blocks,
    select_top_keys,
    sum_over_blocks,
)

B, H, G, T, D, SIZE = 2, 6, 3, 10, 7, 2


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(0)


def draw(rng, *shape):
    return torch.randn(*shape, generator=rng)


@pytest.mark.parametrize("count", [1, 3, T, T + 5])
def test_the_keys_are_those_that_sorting_puts_first(rng, count):
    scores, mask = draw(rng, B, H, T, T), causal_mask(T, T)
    found = select_top_keys(scores, mask, count)
    for b in range(B):
        for h in range(H):
            for t in range(T):
                order = sorted(range(t + 1), key=lambda s: -scores[b, h, t, s])
                assert {*found[b, h, t].nonzero()[:, 0].tolist()} == {*order[:count]}


def test_equal_scores_still_keep_the_wanted_number_of_keys():
    found = select_top_keys(torch.zeros(T, T), causal_mask(T, T), 4)
    assert found.sum(-1).tolist() == [min(t + 1, 4) for t in range(T)]


def test_a_query_that_can_attend_to_no_key_keeps_none():
    mask = torch.tensor([[True, True], [False, False]])
    found = select_top_keys(torch.ones(2, 2), mask, 1)
    assert found.sum(-1).tolist() == [1, 0]


def test_the_weights_of_blocks_sum_to_one(rng):
    weights = draw(rng, B, H, T, T).softmax(-1)
    blocks = sum_over_blocks(weights, SIZE)
    assert blocks.shape == (B, H, T, T // SIZE)
    torch.testing.assert_close(blocks.sum(-1), torch.ones(B, H, T))
    torch.testing.assert_close(blocks[..., 1], weights[..., 2:4].sum(-1))


def test_blocks_are_scored_by_their_mean_keys_key_by_key(rng):
    query, key = draw(rng, B, H, T, D), draw(rng, B, G, T, D)
    found = score_mean_keys(query, key, SIZE)
    for h in range(H):
        for t in range(T):
            for m in range(T // SIZE):
                mean = sum(key[0, h * G // H, m * SIZE + i] for i in (0, 1)) / 2
                wanted = float(query[0, h, t] @ mean) / D**0.5
                if m == t // SIZE:
                    wanted = torch.inf
                if m > t // SIZE:
                    wanted = -torch.inf
                assert float(found[0, h, t, m]) == pytest.approx(wanted, abs=1e-5)


def test_some_queries_are_scored_as_among_all(rng):
    query, key = draw(rng, B, H, T, D), draw(rng, B, G, T, D)
    rows = torch.tensor([9, 0, 4])
    every = score_mean_keys(query, key, SIZE)
    some = score_mean_keys(query[:, :, rows], key, SIZE, rows)
    torch.testing.assert_close(some, every[:, :, rows])
    last = score_mean_keys(query[:, :, -3:], key, SIZE)
    torch.testing.assert_close(last, every[:, :, -3:])


def test_a_block_is_kept_whole_up_to_the_query():
    scores = torch.tensor([[5.0, 1.0, 3.0]])
    mask = torch.tensor([[True, True, True, True, True, False]])
    found = select_top_blocks(scores, mask, count=2, size=2)
    assert found.tolist() == [[True, True, False, False, True, False]]


def test_the_own_block_is_always_among_the_selected_ones(rng):
    query, key = draw(rng, B, H, T, D), draw(rng, B, G, T, D)
    scores = score_mean_keys(query, key, SIZE)
    found = select_top_blocks(scores, causal_mask(T, T), 1, SIZE)
    for t in range(T):
        kept = found[0, 0, t].nonzero()[:, 0].tolist()
        assert kept == [*range(t // SIZE * SIZE, t + 1)]


@pytest.mark.refusal
def test_wrong_numbers_are_refused_with_both_values():
    scores, mask = torch.ones(1, 6), torch.ones(1, 6, dtype=torch.bool)
    with pytest.raises(ValueError, match="count must be at least 1, but is 0"):
        select_top_keys(scores, mask, 0)
    with pytest.raises(ValueError, match="size must be at least 1, but is 0"):
        select_top_blocks(scores, mask, 1, 0)
    wrong = "blocks of 4 do not divide a sequence of length 6"
    with pytest.raises(ValueError, match=wrong):
        sum_over_blocks(scores, 4)
    with pytest.raises(ValueError, match=wrong):
        score_mean_keys(torch.ones(1, 1, 6, 2), torch.ones(1, 1, 6, 2), 4)
