"""Selection of keys: each query attends to a few keys, or blocks, only.

A selection is a mask. Its keys have the largest scores, whichever these are:
the attention weights themselves, which only an oracle knows beforehand, the
products of the query and the mean key of each block, or those of a small
network (`attnbook.attention.lightning_indexer`).

Source: blocks by their mean key: Lu et al. (2025), MoBA, section 2.2,
    https://arxiv.org/abs/2502.13189 (the query's own block always counts as
    one of the selected ones); single keys: DeepSeek-AI (2025), section 1,
    https://github.com/deepseek-ai/DeepSeek-V3.2-Exp. Departure from MoBA: its
    models were trained with the selection.
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, M blocks
    of keys, D width of query and key
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnbook.attention.grouped_query import grouped_scores
from attnbook.masks.layouts import count_blocks
from attnbook.masks.rules import check_positive


def select_top_keys(
    scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "..."], count: int
) -> Bool[Tensor, "*B T S"]:
    """Return the mask of the `count` keys with the largest scores of a query.

    >>> scores = torch.tensor([[3.0, 1.0, 2.0, 9.0]])
    >>> select_top_keys(scores, torch.tensor([1, 1, 1, 0]).bool(), 2).tolist()
    [[True, False, True, False]]

    Args:
        scores: one for each query and key.
        mask: True where a query can attend; broadcasts to scores.
        count: keys of a query; one that can attend to fewer keeps all.

    Raises:
        ValueError: if the count is below 1.
    """
    check_positive(count=count)
    visible = scores.masked_fill(~mask, -torch.inf)
    best = visible.topk(min(count, scores.shape[-1]), dim=-1).indices
    chosen = torch.zeros_like(scores, dtype=torch.bool)
    return chosen.scatter_(-1, best, True) & mask


def sum_over_blocks(
    weights: Float[Tensor, "*B T S"], size: int
) -> Float[Tensor, "*B T M"]:
    """Return how much weight a query gives to each block of keys.

    Raises:
        ValueError: if blocks of this size do not divide the keys.
    """
    count_blocks(weights.shape[-1], size)
    return weights.unflatten(-1, (-1, size)).sum(dim=-1)


def score_mean_keys(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G S D"],
    size: int,
    positions: Int[Tensor, "T"] | None = None,
) -> Float[Tensor, "B H T M"]:
    """Return the scores of blocks: products of a query and a mean key.

    A query's own block scores ∞; the blocks after it score minus ∞.

    Args:
        query: the queries, rotated if the keys are.
        key: the keys of each group.
        size: keys of a block.
        positions: of the queries among the keys; the last ones unless given.

    Raises:
        ValueError: if blocks of this size do not divide the keys.
    """
    T, S = query.shape[2], key.shape[2]
    count = count_blocks(S, size)
    if positions is None:
        positions = torch.arange(S - T, S, device=key.device)
    scores = grouped_scores(query, key.unflatten(2, (-1, size)).mean(dim=3))
    own = positions[:, None] // size
    block = torch.arange(count, device=key.device)
    scores = scores.masked_fill(block == own, torch.inf)
    return scores.masked_fill(block > own, -torch.inf)


def select_top_blocks(
    scores: Float[Tensor, "*B T M"],
    mask: Bool[Tensor, "..."],
    count: int,
    size: int,
) -> Bool[Tensor, "*B T S"]:
    """Return the mask of the `count` blocks with the largest scores.

    Args:
        scores: one for each query and block.
        mask: True where a query can attend to a key; broadcasts to the result.
        count: blocks of a query.
        size: keys of a block.

    Raises:
        ValueError: if the count or the size is below 1.
    """
    check_positive(size=size)
    everywhere = torch.ones((), dtype=torch.bool, device=scores.device)
    blocks = select_top_keys(scores, everywhere, count)
    return blocks.repeat_interleave(size, dim=-1) & mask
