"""Block-sparse attention, and selections of the keys that are worth attending to.

A layout says which blocks of keys each block of queries attends to; all other
blocks are neither read nor computed. Inside the kept blocks a rule can mask
single positions, such as the edge of a window. Only query, key and value are
saved for the backward pass, which computes the weights of each block again.

A selection is a mask. Its keys have the largest scores, whichever these are:
the attention weights themselves, which only an oracle knows beforehand, the
products of the query and the mean key of each block, or those of the lightning
indexer: a few narrow heads, the same for all heads of a layer, score key s for
query t by I_ts = Σ_j w_tj ReLU(q_tj · k_s), where w and q depend on t, k on s.

Source: blocks: Child et al. (2019), https://arxiv.org/abs/1904.10509, and
    Zaheer et al. (2020), appendix D, https://arxiv.org/abs/2007.14062; the
    backward pass is chapter 4's, one row of blocks at a time, with weights that
    are recomputed as in Dao et al. (2022), algorithm 4,
    https://arxiv.org/abs/2205.14135. Blocks by their mean key: Lu et al.
    (2025), MoBA, section 2.2, https://arxiv.org/abs/2502.13189 (the query's own
    block always counts as one of the selected ones; departure: its models were
    trained with the selection). Lightning indexer: DeepSeek-AI (2025),
    DeepSeek-V3.2-Exp, section 1 and equations 1 and 3,
    https://github.com/deepseek-ai/DeepSeek-V3.2-Exp, and `Indexer` in its
    inference/model.py: LayerNorm of the keys, rotary embeddings on some of the
    columns, and the factors 1/√D and 1/√H. Departures: q comes from the layer's
    input instead of a compressed query; no Hadamard transform and no 8-bit
    numbers.
Axes: B batch, H heads, G groups (key-value heads), J heads of the indexer, T
    queries, S keys, R the queries among them that are scored, N M blocks of
    queries and of keys, D width of query and key, E of values, C model width
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from attnbook.attention.multi_head import grouped_scores
from attnbook.attention.scaled_dot_product import (
    attend,
    attend_gradient,
    require_values,
)
from attnbook.masks import evaluate_rule
from attnbook.masks.layouts import count_blocks
from attnbook.masks.rules import Rule, check_positive
from attnbook.positions.rotary import rotate_partly


def attend_block_sparse(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S E"],
    layout: Bool[Tensor, "N M"],
    rule: Rule | None = None,
) -> Float[Tensor, "B H T E"]:
    """Return `attend` with the mask of a layout and, inside its blocks, a rule.

    The result is that of the mask `block_sparse(layout, size) & rule`, where
    the size of a block is T / N.

    Args:
        layout: True where a block of queries attends to a block of keys.
        rule: which positions inside the kept blocks a query can attend to; all
            unless given.

    Raises:
        ValueError: if the blocks do not divide the queries or the keys, or a
            block of queries has no block of keys.
    """
    require_values(key, value)
    size, runs = read_layout(query, key, layout)
    rows = [Row(n * size, (n + 1) * size, x) for n, x in enumerate(runs)]
    if rule is not None:
        rows = [x.restrict(rule, query) for x in rows]
    # PyTorch does not annotate `apply`.
    output: Tensor = BlockSparse.apply(  # type: ignore[no-untyped-call]
        query, key, value, rows
    )
    return output


class Row(NamedTuple):
    """A block of queries start ... stop - 1, its ranges of keys, and their mask."""

    start: int
    stop: int
    runs: list[tuple[int, int]]
    mask: Tensor | None = None

    def restrict(self, rule: Rule, like: Tensor) -> "Row":
        """Return the row with the mask that a rule leaves of it."""
        query = torch.arange(self.start, self.stop, device=like.device)
        runs = [torch.arange(a, b, device=like.device) for a, b in self.runs]
        mask = evaluate_rule(rule, query, torch.cat(runs), *like.shape[:2])
        return self._replace(mask=mask)


def read_layout(
    query: Tensor, key: Tensor, layout: Tensor
) -> tuple[int, list[list[tuple[int, int]]]]:
    """Return the size of a block, and the ranges of keys of each row."""
    T, S = query.shape[-2], key.shape[-2]
    N, M = layout.shape
    if T % N or S % M or T // N != S // M:
        raise ValueError(
            f"a layout of {N} by {M} blocks does not divide {T} queries and "
            f"{S} keys into square blocks"
        )
    size = T // N
    found = []
    for n, row in enumerate(layout.tolist()):
        runs: list[tuple[int, int]] = []
        for m, kept in enumerate(row):
            if kept and runs and runs[-1][1] == m * size:
                runs[-1] = runs[-1][0], (m + 1) * size
            elif kept:
                runs.append((m * size, (m + 1) * size))
        if not runs:
            raise ValueError(
                f"block {n} of the {N} blocks of queries attends to none of "
                f"the {M} blocks of keys; each needs at least one"
            )
        found.append(runs)
    return size, found


class BlockSparse(torch.autograd.Function):
    """Attention to the kept blocks, and its gradient."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, rows: list[Row]
    ) -> Tensor:
        """Compute one row of blocks after the other; keep the inputs."""
        ctx.save_for_backward(query, key, value)
        ctx.rows = rows
        output = value.new_empty(*query.shape[:-1], value.shape[-1])
        for start, stop, runs, mask in rows:
            keys, values = (take_runs(x, runs) for x in (key, value))
            output[..., start:stop, :] = attend(
                query[..., start:stop, :], keys, values, mask
            )
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Compute the weights of each row of blocks again, and go back."""
        query, key, value = ctx.saved_tensors
        dquery = torch.empty_like(query)
        # A key is in several rows of blocks: its sum is taken in float32.
        wide = torch.promote_types(key.dtype, torch.float32)
        sums = [torch.zeros_like(x, dtype=wide) for x in (key, value)]
        for start, stop, runs, mask in ctx.rows:
            queries, up = (x[..., start:stop, :] for x in (query, upstream))
            keys, values = (take_runs(x, runs) for x in (key, value))
            dquery[..., start:stop, :], *found = attend_gradient(
                queries, keys, values, up, mask
            )
            for total, part in zip(sums, found, strict=True):
                sizes = [last - first for first, last in runs]
                pieces = part.split(sizes, dim=-2)
                for (first, last), piece in zip(runs, pieces, strict=True):
                    total[..., first:last, :] += piece
        return dquery, sums[0].to(key), sums[1].to(value), None


def take_runs(x: Tensor, runs: list[tuple[int, int]]) -> Tensor:
    """Return the rows in some ranges; of one range, a view."""
    parts = [x[..., start:stop, :] for start, stop in runs]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)


def select_top_keys(
    scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "..."], count: int
) -> Bool[Tensor, "*B T S"]:
    """Return the mask of the `count` keys with the largest scores of a query.

    >>> scores = torch.tensor([[3.0, 1.0, 2.0, 9.0]])
    >>> select_top_keys(scores, torch.tensor([1, 1, 1, 0]).bool(), 2).tolist()
    [[True, False, True, False]]

    A query that can attend to fewer keys, where `mask` is True, keeps all.

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
        query: rotated if the keys are.
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
    """Return the mask of the `count` blocks, of `size` keys, that score most.

    The mask says which keys a query can attend to at all.

    Raises:
        ValueError: if the count or the size is below 1.
    """
    check_positive(size=size)
    everywhere = torch.ones((), dtype=torch.bool, device=scores.device)
    blocks = select_top_keys(scores, everywhere, count)
    return blocks.repeat_interleave(size, dim=-1) & mask


class LightningIndexer(nn.Module):
    """Scores of all keys for the queries of a layer.

    Args:
        heads: J.
        size: D, a multiple of 4: half of the columns are rotated.
        base: of the rotary frequencies.
    """

    def __init__(self, width: int, heads: int, size: int, base: float = 10000):
        super().__init__()
        self.query = nn.Linear(width, heads * size, bias=False)
        self.key = nn.Linear(width, size, bias=False)
        self.norm = nn.LayerNorm(size, eps=1e-6)
        self.weight = nn.Linear(width, heads, bias=False)
        self.heads, self.size, self.base = heads, size, base

    def forward(
        self, x: Float[Tensor, "B T C"], rows: Int[Tensor, "R"] | None = None
    ) -> Float[Tensor, "B R T"]:
        """Return the scores of all keys for the queries at `rows`, or for all."""
        positions = torch.arange(x.shape[1], device=x.device)
        rows = positions if rows is None else rows
        asked = x[:, rows]
        half = self.size // 2, self.base
        query = self.query(asked).unflatten(-1, (self.heads, self.size))
        query = rotate_partly(query.transpose(1, 2), rows, *half)  # (B, J, R, D)
        key = rotate_partly(self.norm(self.key(x))[:, None], positions, *half)
        products = (query @ key.mT).relu()  # (B, J, R, T)
        weight = self.weight(asked).mT[..., None]  # (B, J, R, 1)
        scale = (self.heads * self.size) ** -0.5
        return (products * weight).sum(dim=1) * scale


def compute_indexer_loss(
    scores: Float[Tensor, "B R T"],
    weights: Float[Tensor, "B H R T"],
    mask: Bool[Tensor, "R T"],
) -> Float[Tensor, ""]:
    """Return the mean KL divergence of scores from the attention's weights.

    The target of a query is the mean of its weights over the heads.
    """
    target = weights.mean(dim=1)
    # A masked key has the target 0; 0 · log 0 is 0, but 0 · ∞ is NaN.
    predicted = scores.masked_fill(~mask, -torch.inf).log_softmax(dim=-1)
    predicted = predicted.masked_fill(~mask, 0.0)
    terms = torch.xlogy(target, target) - target * predicted
    return terms.sum(dim=-1).mean()
