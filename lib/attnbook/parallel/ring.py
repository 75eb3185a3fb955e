"""Ring attention: each rank holds some positions, and keys travel around a ring.

A rank attends with its queries to the keys it holds, sends these to the next
rank, receives others from the previous one, and merges the two results as
chapter 11 merges tiles. After P - 1 messages every query has met every key. In
the backward pass the keys make the same journey again, and the sums of their
gradients travel with them, P messages, back to where the keys belong.

With a causal mask, rank r of contiguous positions has keys to attend to in only
r + 1 of the P steps, but waits in all of them. In the zigzag layout each rank
holds one early and one late run of positions, so that all have equal work.

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
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from attnbook.attention.tiled import (
    BLOCK_SIZE,
    TileScores,
    attend_tiled,
    attend_tiled_gradient,
    merge,
    promote_to_float32,
)
from attnbook.parallel.groups import Group, require_alike, require_all

Layout = Sequence[Int[Tensor, " _"]]  # for each rank, its positions in ascending order


def contiguous(length: int, ranks: int) -> Layout:
    """Return a layout in which each rank holds one run of positions.

    The first ranks hold one position more if the length does not divide.
    """
    check_layout(length, ranks)
    return torch.arange(length).tensor_split(ranks)


def zigzag(length: int, ranks: int) -> Layout:
    """Return a layout of 2 P runs, of which rank r holds the r-th and r-th last."""
    check_layout(length, ranks)
    runs = torch.arange(length).tensor_split(2 * ranks)
    return [torch.cat([runs[r], runs[-1 - r]]) for r in range(ranks)]


def striped(length: int, ranks: int) -> Layout:
    """Return a layout in which rank r holds the positions r, r + P, r + 2 P, ..."""
    check_layout(length, ranks)
    return [torch.arange(r, length, ranks) for r in range(ranks)]


def check_layout(length: int, ranks: int) -> None:
    """Raise ValueError if there is no position, or no rank."""
    if length < 1 or ranks < 1:
        raise ValueError(
            f"a layout needs positions and ranks, but there are {length} and {ranks}"
        )


def take_shard(
    x: Shaped[Tensor, "..."], positions: Int[Tensor, " t"], dim: int = -2
) -> Shaped[Tensor, "..."]:
    """Return the part of a tensor (..., T, D) that one rank holds (..., t, D)."""
    return x.index_select(dim, positions.to(x.device))


def join_shards(
    shards: Sequence[Tensor], layout: Layout, dim: int = -2
) -> Shaped[Tensor, "..."]:
    """Return the whole tensor (..., T, D) of the parts of all ranks."""
    order = torch.cat([*layout]).argsort().to(shards[0].device)
    return torch.cat([*shards], dim).index_select(dim, order)


class ShardScores(TileScores):
    """Scores of queries and keys that are given with their positions.

    Tiles beyond the last key that any of their queries can attend to are not
    computed.

    Args:
        query_positions: (t,), ascending; key_positions: (s,), likewise.
        scale: factor of the dot products.
        causal: whether a query attends to no later position.
        key_lengths: (B,), the sequences' lengths without padding.
    """

    def __init__(
        self,
        query_positions: Int[Tensor, " t"],
        key_positions: Int[Tensor, " s"],
        scale: float,
        causal: bool = False,
        key_lengths: Int[Tensor, " B"] | None = None,
    ):
        super().__init__(len(key_positions), scale)
        self.rows, self.columns = query_positions, key_positions
        self.causal, self.key_lengths = causal, key_lengths

    def key_range(self, first: int, stop: int) -> tuple[int, int]:
        """Return which keys queries first ... stop - 1 can attend to."""
        if not self.causal or stop <= first:
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
        if self.causal and len(columns) and columns[-1] > rows[0]:
            scores = scores.masked_fill(columns > rows, -torch.inf)
        if self.key_lengths is not None:
            ends = self.key_lengths.view(-1, *[1] * (scores.ndim - 1))
            scores = scores.masked_fill(columns >= ends, -torch.inf)
        return scores, slope


def split_groups(
    query: Float[Tensor, "B H t D"], key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (B, G, H / G, t, D), and keys and values that broadcast to it."""
    groups = key.shape[1]
    return query.unflatten(1, (groups, -1)), key[:, :, None], value[:, :, None]


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
    without any key gets 0 and -inf.

    Args:
        query_positions: of the queries in the whole sequence, ascending;
            key_positions likewise.
        causal: whether a query attends to no later position.
        key_lengths: keys from this position on are padding.
        block: queries, and keys, of a tile.
    """
    scores = ShardScores(
        query_positions, key_positions, query.shape[-1] ** -0.5, causal, key_lengths
    )
    output, lse = attend_tiled(*split_groups(query, key, value), block, scores)
    return output.flatten(1, 2), lse.flatten(1, 2)


def attend_to_shard_gradient(
    query: Float[Tensor, "B H t D"],
    key: Float[Tensor, "B G s D"],
    value: Float[Tensor, "B G s E"],
    output: Float[Tensor, "B H t E"],
    lse: Float[Tensor, "B H t"],
    upstream: Float[Tensor, "B H t E"],
    query_positions: Int[Tensor, " t"],
    key_positions: Int[Tensor, " s"],
    causal: bool = False,
    key_lengths: Int[Tensor, " B"] | None = None,
    block: int = BLOCK_SIZE,
) -> tuple[
    Float[Tensor, "B H t D"], Float[Tensor, "B G s D"], Float[Tensor, "B G s E"]
]:
    """Return what these keys add to a loss's gradients on query, key and value.

    Args:
        output, lse: of attention to the keys of all ranks, merged.
        upstream: the loss's gradient on the output.
        query_positions, key_positions, causal, key_lengths, block: as in
            `attend_to_shard`.
    """
    scores = ShardScores(
        query_positions, key_positions, query.shape[-1] ** -0.5, causal, key_lengths
    )
    groups = (key.shape[1], -1)
    dquery, dkey, dvalue = attend_tiled_gradient(
        *split_groups(query, key, value),
        *(x.unflatten(1, groups) for x in (output, lse, upstream)),
        block,
        scores,
    )
    return dquery.flatten(1, 2), dkey[:, :, 0], dvalue[:, :, 0]


class RingAttention(torch.autograd.Function):
    """Ring attention of one rank; see `ring_attention`."""

    @staticmethod
    def forward(
        ctx,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        group: Group,
        layout: Layout,
        positions: Tensor,
        causal: bool,
        key_lengths: Tensor | None,
        partials: torch.dtype | None,
        block: int,
    ) -> Tensor:
        """Return the output of this rank's queries, which have these positions."""
        rank, size = group.rank, group.size
        wide = partials or promote_to_float32(query[..., :0]).dtype
        queries, keys, values = query.to(wide), key, value
        output = lse = None
        for step in range(size):
            owner = (rank - step) % size
            if step:
                keys, values = shift_pair(group, keys, values, len(layout[owner]))
            part, part_lse = attend_to_shard(
                queries,
                keys,
                values,
                positions,
                layout[owner],
                causal,
                key_lengths,
                block,
            )
            if output is None:
                output, lse = part, part_lse.to(wide)
            else:
                output, lse = merge(output, lse, part, part_lse.to(wide))
        ctx.save_for_backward(query, key, value, output, lse)
        ctx.rest = group, layout, positions, causal, key_lengths, block
        return output.to(query.dtype)

    @staticmethod
    def backward(ctx, upstream: Tensor) -> tuple:
        """Return this rank's gradients; those of its keys come back to it last."""
        query, key, value, output, lse = ctx.saved_tensors
        group, layout, positions, causal, key_lengths, block = ctx.rest
        rank, size, wide = group.rank, group.size, output.dtype
        queries, upstream = query.to(wide), upstream.to(wide)
        # The journey begins again with this rank's own keys: those it held at
        # the end of the forward pass belong to the next rank.
        keys, values = key, value
        dquery = torch.zeros_like(queries)
        dkeys, dvalues = (torch.zeros_like(x, dtype=wide) for x in (key, value))
        for step in range(size):
            owner = (rank - step) % size
            if step:
                count = len(layout[owner])
                keys, values = shift_pair(group, keys, values, count)
                dkeys, dvalues = shift_pair(group, dkeys, dvalues, count)
            dq, dk, dv = attend_to_shard_gradient(
                queries,
                keys.to(wide),
                values.to(wide),
                output,
                lse,
                upstream,
                positions,
                layout[owner],
                causal,
                key_lengths,
                block,
            )
            dquery += dq
            dkeys, dvalues = dkeys + dk, dvalues + dv
        if size > 1:
            dkeys, dvalues = shift_pair(group, dkeys, dvalues, len(layout[rank]))
        grads = dquery.to(query), dkeys.to(key), dvalues.to(value)
        return (*grads, *[None] * 7)


def shift_pair(
    group: Group, key: Tensor, value: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """Return the previous rank's keys and values, `count` of them, as one message."""
    packed = torch.cat([key, value], dim=-1)
    shape = *packed.shape[:-2], count, packed.shape[-1]
    arrived = group.shift(packed, shape)
    keys, values = arrived.split([key.shape[-1], value.shape[-1]], dim=-1)
    return keys, values


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
        group: this rank's.
        layout: the positions of every rank.
        causal: whether a query attends to no later position.
        key_lengths: the sequences' lengths without padding, on every rank.
        partials: the type in which results are merged and gradients summed;
            float32 unless given, or float64 if the inputs are.
        block: queries, and keys, of a tile.

    Raises:
        ValueError: on every rank, if any of them has tensors that do not fit
            the layout, each other, or the other ranks'.
    """
    check_shards(query, key, value, group, layout)
    return RingAttention.apply(
        query,
        key,
        value,
        group,
        layout,
        layout[group.rank],
        causal,
        key_lengths,
        partials,
        block,
    )


def attend_alone(
    query: Float[Tensor, "B H t D"],
    key: Float[Tensor, "B G s D"],
    value: Float[Tensor, "B G s E"],
    query_positions: Int[Tensor, " t"],
    key_positions: Int[Tensor, " s"],
    causal: bool = False,
    key_lengths: Int[Tensor, " B"] | None = None,
    block: int = BLOCK_SIZE,
) -> Float[Tensor, "B H t E"]:
    """Return attention without any message, with its gradient: a ring of one rank.

    The arguments are those of `attend_to_shard`.
    """
    return RingAttention.apply(
        query,
        key,
        value,
        Group(0, 1),
        [key_positions],
        query_positions,
        causal,
        key_lengths,
        None,
        block,
    )


def check_shards(
    query: Tensor, key: Tensor, value: Tensor, group: Group, layout: Layout
) -> None:
    """Raise one ValueError on every rank if any has tensors that do not fit."""
    require_all(group, find_misfit(query, key, value, group, layout))
    require_alike(
        group,
        {
            "sequences, heads, key heads and widths": (
                *query.shape[:2],
                key.shape[1],
                key.shape[-1],
                value.shape[-1],
            ),
            "length": sum(len(x) for x in layout),
            "type": query.dtype,
            "kind of device": query.device.type,
        },
    )


def find_misfit(
    query: Tensor, key: Tensor, value: Tensor, group: Group, layout: Layout
) -> str | None:
    """Return a sentence on what does not fit on this rank, or None."""
    where = f"on rank {group.rank}"
    if len(layout) != group.size:
        return f"the layout is for {len(layout)} ranks, but there are {group.size}"
    empty = [rank for rank, positions in enumerate(layout) if not len(positions)]
    if empty:
        return f"the layout gives rank {empty[0]} of {group.size} no position"
    tensors = {"query": query, "key": key, "value": value}
    for name, x in tensors.items():
        if x.ndim != 4:
            return f"{where} the {name} has {x.ndim} axes, not 4: (B, H, t, D)"
        if x.shape[-2] != len(layout[group.rank]):
            return (
                f"{where} the {name} has {x.shape[-2]} positions, but the layout "
                f"gives this rank {len(layout[group.rank])}"
            )
        if x.device != query.device:
            return (
                f"{where} the query is on {query.device} but the {name} on {x.device}"
            )
        if x.dtype != query.dtype:
            return f"{where} the query is {query.dtype} but the {name} {x.dtype}"
    if key.shape[1] != value.shape[1]:
        return f"{where} there are {key.shape[1]} key heads, {value.shape[1]} of values"
    if key.shape[1] < 1 or query.shape[1] % key.shape[1]:
        return f"{query.shape[1]} heads do not divide into {key.shape[1]} groups"
    if query.shape[-1] != key.shape[-1]:
        return (
            f"{where} queries are {query.shape[-1]} wide but keys {key.shape[-1]}: a "
            "dot product needs equal widths"
        )
    return None


def count_scores(layout: Layout, causal: bool = False) -> Int[Tensor, "P P"]:
    """Return how many pairs of query and key each rank computes at each step.

    Row r, column s: rank r holds the keys of rank r - s then. All ranks wait
    for the one with the most pairs of a step.
    """
    size = len(layout)
    counts = torch.zeros(size, size, dtype=torch.int64)
    for rank, queries in enumerate(layout):
        for step in range(size):
            keys = layout[(rank - step) % size]
            if causal:
                pairs = torch.searchsorted(keys, queries, right=True).sum()
            else:
                pairs = torch.tensor(len(keys) * len(queries))
            counts[rank, step] = pairs
    return counts
