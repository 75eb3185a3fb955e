"""Ring attention: each rank holds some positions, and keys travel around a ring.

A rank attends with its queries to the keys it holds, sends these to the next
rank, receives others from the previous one, and merges the two results as
chapter 11 merges tiles. After P - 1 messages every query has met every key. In
the backward pass the keys make the same journey again, and the sums of their
gradients travel with them, P messages, back to where the keys belong.

Source: Liu et al. (2023), section 3, https://arxiv.org/abs/2310.01889; the
    backward pass with the saved logsumexp: Dao (2023), algorithm 2,
    https://arxiv.org/abs/2307.08691; zigzag: Llama Team (2024), section 3.3.2,
    https://arxiv.org/abs/2407.21783 (departure: there the keys are gathered);
    striped: Brandon et al. (2023), section 3, https://arxiv.org/abs/2311.09431
Axes: B batch, H heads, G groups (key-value heads), T positions of the sequence,
    t and s positions that one rank holds, D width of query and key, E of values
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.attention.tiled import (
    BLOCK_SIZE,
    TileScores,
    attend_tiled,
    attend_tiled_gradient,
    merge,
    promote_to_float32,
)
from attnbook.parallel.groups import Group, require_alike

Positions = Int[Tensor, " _"]  # that one rank holds, in ascending order
Layout = Sequence[Positions]  # of each rank


def contiguous(length: int, ranks: int) -> Layout:
    """Return a layout in which each rank holds one run of positions.

    The first ranks hold one position more if the length does not divide.
    """
    return torch.arange(length).tensor_split(ranks)


def zigzag(length: int, ranks: int) -> Layout:
    """Return a layout of 2 P runs, of which rank r holds the r-th and r-th last."""
    runs = torch.arange(length).tensor_split(2 * ranks)
    return [torch.cat([runs[r], runs[-1 - r]]) for r in range(ranks)]


def striped(length: int, ranks: int) -> Layout:
    """Return a layout in which rank r holds the positions r, r + P, r + 2 P, ..."""
    return [torch.arange(length)[r::ranks].contiguous() for r in range(ranks)]


def take_shard(x: Tensor, positions: Positions, dim: int = -2) -> Tensor:
    """Return the part of a tensor (..., T, D) that one rank holds (..., t, D)."""
    return x.index_select(dim, positions.to(x.device))


def join_shards(shards: Sequence[Tensor], layout: Layout, dim: int = -2) -> Tensor:
    """Return the whole tensor (..., T, D) of the parts of all ranks."""
    order = torch.cat([*layout]).argsort().to(shards[0].device)
    return torch.cat([*shards], dim).index_select(dim, order)


class ShardScores(TileScores):
    """Scores of queries and keys of these positions; see `ring_attention`.

    A tile beyond the last key that any of its queries can attend to is not
    computed.
    """

    def __init__(self, width: int, rows, columns, causal, key_lengths):
        super().__init__(len(columns), width**-0.5)
        self.rows, self.columns = rows, columns
        self.causal, self.key_lengths = causal, key_lengths

    def key_range(self, first: int, stop: int) -> tuple[int, int]:
        """Return which keys queries first ... stop - 1 can attend to."""
        if not self.causal:
            return 0, self.keys
        last = self.rows[stop - 1 : stop]
        return 0, int(torch.searchsorted(self.columns, last, right=True))

    def compute(
        self, query: Tensor, key: Tensor, row: int, column: int
    ) -> tuple[Tensor, float]:
        """Return a tile's scores, -inf where a query cannot attend."""
        scores, slope = super().compute(query, key, row, column)
        rows = self.rows[row : row + query.shape[-2], None].to(scores.device)
        columns = self.columns[column : column + key.shape[-2]].to(scores.device)
        if self.causal:
            scores = scores.masked_fill(columns > rows, -torch.inf)
        if self.key_lengths is not None:
            ends = self.key_lengths.view(-1, *[1] * (scores.ndim - 1))
            scores = scores.masked_fill(columns >= ends, -torch.inf)
        return scores, slope


def attend_to_shard(
    query: Float[Tensor, "B H t D"],
    key: Float[Tensor, "B G s D"],
    value: Float[Tensor, "B G s E"],
    query_positions: Int[Tensor, " t"],
    key_positions: Int[Tensor, " s"],
    causal: bool = False,
    key_lengths: Int[Tensor, " B"] | None = None,
    block: int = BLOCK_SIZE,
) -> tuple[Float[Tensor, "B H t E"], Float[Tensor, "B H t"]]:
    """Return attention of some queries to some keys, and its logsumexp.

    `attnbook.attention.tiled.merge` merges what two shards of keys give. A query
    without any key gets 0 and -inf. Positions are those in the whole sequence,
    ascending; the other arguments are those of `ring_attention`.
    """
    scores = ShardScores(
        query.shape[-1], query_positions, key_positions, causal, key_lengths
    )
    grouped = query.unflatten(1, (key.shape[1], -1))
    shared = key[:, :, None], value[:, :, None]
    output, lse = attend_tiled(grouped, *shared, block, scores)
    return output.flatten(1, 2), lse.flatten(1, 2)


class RingAttention(torch.autograd.Function):
    """Ring attention of one rank; see `ring_attention`.

    `positions` are those of the queries; `rules` are causal and key_lengths.
    """

    @staticmethod
    def forward(
        ctx, query, key, value, group, layout, positions, rules, partials, block
    ) -> Tensor:
        """Return the output of this rank's queries."""
        wide = partials or promote_to_float32(query[..., :0]).dtype
        packed, merged = torch.cat([key, value], dim=-1), ()
        for step, owner in enumerate(list_owners(group, layout)):
            if step:
                packed = shift_rows(group, packed, len(owner))
            keys, values = packed.split([key.shape[-1], value.shape[-1]], dim=-1)
            output, lse = attend_to_shard(
                query.to(wide), keys, values, positions, owner, *rules, block
            )
            part = output, lse.to(wide)
            merged = merge(*merged, *part) if step else part
        ctx.save_for_backward(query, key, value, *merged)
        ctx.rest = group, layout, positions, rules, block
        return merged[0].to(query.dtype)

    @staticmethod
    def backward(ctx, upstream: Tensor) -> tuple:
        """Return this rank's gradients; those of its keys come back to it last."""
        query, key, value, output, lse = ctx.saved_tensors
        group, layout, positions, rules, block = ctx.rest
        wide, heads = output.dtype, (key.shape[1], -1)
        rows = [x.unflatten(1, heads) for x in (output, lse, upstream.to(wide))]
        queries = query.to(wide).unflatten(1, heads)
        dquery = torch.zeros_like(queries)
        widths = [key.shape[-1], value.shape[-1]]
        # The journey begins again with this rank's own keys: those it held at
        # the end of the forward pass belong to the next rank.
        packed = torch.cat([key, value], dim=-1)
        sums = torch.zeros_like(packed, dtype=wide)
        for step, owner in enumerate(list_owners(group, layout)):
            if step:
                packed = shift_rows(group, packed, len(owner))
                sums = shift_rows(group, sums, len(owner))
            scores = ShardScores(query.shape[-1], positions, owner, *rules)
            shared = packed.to(wide)[:, :, None].split(widths, dim=-1)
            dq, *dshared = attend_tiled_gradient(queries, *shared, *rows, block, scores)
            dquery += dq
            sums = sums + torch.cat(dshared, dim=-1)[:, :, 0]
        if group.size > 1:
            sums = shift_rows(group, sums, key.shape[-2])
        grads = dquery.flatten(1, 2), *sums.split(widths, dim=-1)
        return *(x.to(query.dtype) for x in grads), *[None] * 6


def list_owners(group: Group, layout: Layout) -> list[Positions]:
    """Return the positions of the keys that this rank holds at each step."""
    return [layout[group.rank - step] for step in range(group.size)]


def shift_rows(group: Group, x: Tensor, count: int) -> Tensor:
    """Return the previous rank's rows, of which there are `count`."""
    return group.shift(x, (*x.shape[:-2], count, x.shape[-1]))


def ring_attention(
    query: Float[Tensor, "B H t D"],
    key: Float[Tensor, "B G t D"],
    value: Float[Tensor, "B G t E"],
    group: Group,
    layout: Layout,
    causal: bool = False,
    key_lengths: Int[Tensor, " B"] | None = None,
    partials: torch.dtype | None = None,
    block: int = BLOCK_SIZE,
) -> Float[Tensor, "B H t E"]:
    """Return this rank's part of attention of all queries to all keys.

    Args:
        query: of the positions that this rank holds; key and value likewise.
        layout: the positions of every rank.
        key_lengths: the sequences' lengths without padding, on every rank.
        partials: the type in which results are merged and gradients summed;
            float32 unless given, or float64 if the inputs are.
        block: queries, and keys, of a tile.

    Raises:
        ValueError: on every rank, if any of them has tensors that do not fit
            the layout, each other, or the other ranks'.
    """
    check_shards(query, key, value, group, layout)
    rules, own = (causal, key_lengths), layout[group.rank]
    return RingAttention.apply(
        query, key, value, group, layout, own, rules, partials, block
    )


def check_shards(
    query: Tensor, key: Tensor, value: Tensor, group: Group, layout: Layout
) -> None:
    """Raise one ValueError on every rank if any has tensors that do not fit."""
    tensors, counts = (query, key, value), [len(positions) for positions in layout]
    kinds = [f"{x.dtype} on {x.device}" for x in tensors]
    heads, groups, error = query.shape[1], key.shape[1], None
    if len(counts) != group.size or min(counts) < 1:
        error = f"{group.size} ranks need positions each, but the layout is {counts}"
    elif (
        len({*kinds}) > 1
        or {counts[group.rank]} != {x.shape[-2] for x in tensors}
        or not 0 < groups == value.shape[1]
        or heads % groups
        or query.shape[-1] != key.shape[-1]
    ):
        shown = [f"{tuple(x.shape)} {k}" for x, k in zip(tensors, kinds, strict=True)]
        error = (
            f"on rank {group.rank} query, key and value are {', '.join(shown)}, which "
            f"do not fit each other or the layout's {counts[group.rank]} positions"
        )
    require_alike(
        group,
        error,
        sizes=(len(query), heads, groups, query.shape[-1], value.shape[-1]),
        length=sum(counts),
        type=f"{query.dtype} on {query.device.type}",
    )


def count_scores(layout: Layout, causal: bool = False) -> Int[Tensor, "P P"]:
    """Return how many pairs of query and key each rank computes at each step.

    Row r, column s: rank r holds the keys of rank r - s then. All ranks wait
    for the one with the most pairs of a step.
    """

    def count(queries: Tensor, keys: Tensor) -> int:
        if not causal:
            return len(queries) * len(keys)
        return int(torch.searchsorted(keys, queries, right=True).sum())

    ranks = range(len(layout))
    return torch.tensor(
        [[count(layout[r], layout[r - s]) for s in ranks] for r in ranks]
    )
