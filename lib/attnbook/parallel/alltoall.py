"""Other ways to divide a sequence: all-to-all, gathered keys, caches, states.

In **all-to-all** attention (Ulysses) each rank exchanges some positions of all
heads for all positions of some heads, attends as one device would, and exchanges
the output back. A grid of ranks does this along its rows, and a ring along its
columns. With **gathered keys** each rank holds all keys for a moment. While
decoding, the cache is divided and only outputs are sent. Linear attention sends
the sum of each rank's keys, whose size does not depend on the length.

Source: all-to-all: Jacobs et al. (2023), section 3,
    https://arxiv.org/abs/2309.14509; both: Fang and Zhao (2024), section 3,
    https://arxiv.org/abs/2405.07719; gathered keys: Llama Team (2024), section
    3.3.2, https://arxiv.org/abs/2407.21783; a divided cache: Bhatia et al.
    (2025), section 2, https://arxiv.org/abs/2507.07120; states: Sun et al.
    (2025), section 3, https://arxiv.org/abs/2502.07563
Axes: B batch, H heads, G groups (key-value heads), T positions of the sequence,
    t and s positions that one rank holds, D width of query and key, E of
    values, F features; P ranks
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.attention.linear import (
    FeatureMap,
    append_ones,
    attend_linear_chunked,
    compute_features,
    elu_plus_one,
)
from attnbook.attention.tiled import BLOCK_SIZE, merge, promote_to_float32
from attnbook.parallel.groups import (
    Group,
    exchange_parts,
    require_alike,
)
from attnbook.parallel.heads import divide_heads
from attnbook.parallel.ring import (
    Layout,
    RingAttention,
    attend_to_shard,
    check_shards,
    ring_attention,
    zigzag,
)


def sequence_to_heads(
    x: Float[Tensor, "B H t D"], group: Group, layout: Layout
) -> Float[Tensor, "B h T D"]:
    """Exchange some positions of all heads for all positions of H / P heads.

    The positions are in ascending order afterwards.
    """
    parts = [*x.chunk(group.size, dim=1)]
    shapes = [(*parts[0].shape[:2], len(p), x.shape[-1]) for p in layout]
    arrived = exchange_parts(parts, shapes, group)
    return torch.cat(arrived, dim=2)[:, :, torch.cat([*layout]).argsort()]


def heads_to_sequence(
    x: Float[Tensor, "B h T D"], group: Group, layout: Layout
) -> Float[Tensor, "B H t D"]:
    """Exchange all positions of H / P heads for some positions of all heads."""
    every = torch.cat([*layout]).sort().values
    parts = [x[:, :, torch.searchsorted(every, p)] for p in layout]
    shapes = [parts[group.rank].shape] * group.size
    return torch.cat(exchange_parts(parts, shapes, group), dim=1)


def grid_layout(length: int, ring: int, columns: int, make=zigzag) -> Layout:
    """Return `make`'s layout of a ring, each shard divided over a row of ranks."""
    return [p for shard in make(length, ring) for p in shard.tensor_split(columns)]


def grid_attention(
    query: Float[Tensor, "B H t D"],
    key: Float[Tensor, "B G t D"],
    value: Float[Tensor, "B G t E"],
    group: Group,
    columns: int,
    layout: Layout,
    causal: bool = False,
    key_lengths: Int[Tensor, " B"] | None = None,
) -> Float[Tensor, "B H t E"]:
    """Return this rank's part of attention by all-to-all in rows, rings in columns.

    Rank r is in row r // columns and column r % columns; several rows need
    processes. Key heads are repeated if a row has more ranks. The other arguments
    are those of `ring_attention`.

    Raises:
        ValueError: on every rank, as `ring_attention`, and if the ranks do not
            divide into rows, or the heads over a row.
    """
    check_shards(query, key, value, group, layout)
    if group.size % columns:
        raise ValueError(
            f"{group.size} ranks do not divide into rows of {columns} ranks"
        )
    divide_heads(query.shape[1], key.shape[1], columns)
    row, column = (group, Group()) if columns == group.size else group.split(columns)
    rows = [layout[r : r + columns] for r in range(0, group.size, columns)]
    own, copies = rows[column.rank], max(columns // key.shape[1], 1)
    if copies > 1:
        key, value = (x.repeat_interleave(copies, dim=1) for x in (key, value))
    shards = [sequence_to_heads(x, row, own) for x in (query, key, value)]
    merged = [torch.cat([*line]).sort().values for line in rows]
    output = ring_attention(*shards, column, merged, causal, key_lengths)
    return heads_to_sequence(output, row, own)


def all_to_all_attention(
    query, key, value, group: Group, layout: Layout, causal=False, key_lengths=None
) -> Float[Tensor, "B H t E"]:
    """Return `grid_attention` with one row: computed for some heads at a time."""
    rules = layout, causal, key_lengths
    return grid_attention(query, key, value, group, group.size, *rules)


def gather_attention(
    query, key, value, group: Group, layout: Layout, causal=False, key_lengths=None
) -> Float[Tensor, "B H t E"]:
    """Return this rank's part of attention, with the keys of all ranks gathered.

    Arguments and errors are those of `ring_attention`. The memory of a rank
    grows with the length of the whole sequence.
    """
    check_shards(query, key, value, group, layout)
    packed = torch.cat([key, value], dim=-1)
    shapes = [(*key.shape[:2], len(p), packed.shape[-1]) for p in layout]
    packed = torch.cat(exchange_parts([packed] * group.size, shapes, group), dim=2)
    every, order = torch.cat([*layout]).sort()
    parts = packed[:, :, order].split([key.shape[-1], value.shape[-1]], dim=-1)
    rules = layout[group.rank], (causal, key_lengths), None, BLOCK_SIZE
    return RingAttention.apply(query, *parts, Group(), [every], *rules)


@torch.no_grad()
def decode_divided(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G s D"],
    value: Float[Tensor, "B G s E"],
    group: Group,
    key_lengths: Int[Tensor, " B"] | None = None,
) -> Float[Tensor, "B H T E"]:
    """Return attention of new queries to a cache that is divided over the ranks.

    Each rank attends to its own s keys, of which there may be none, and of which
    each sequence has `key_lengths`; only outputs and their logsumexp are sent, in
    float32 at least. The queries and the output are equal on every rank.

    Raises:
        ValueError: on every rank, if the tensors of any do not fit.
    """
    devices = sorted({str(x.device) for x in (query, key, value)})
    error, sizes = None, (*query.shape, *key.shape[:2], value.shape[-1])
    if len(devices) > 1:
        error = f"rank {group.rank} has tensors on {', '.join(devices)}"
    require_alike(group, error, sizes=sizes, type=query.dtype)
    positions = [torch.arange(x.shape[-2], device=x.device) for x in (query, key)]
    output, lse = attend_to_shard(
        promote_to_float32(query), key, value, *positions, key_lengths=key_lengths
    )
    packed = torch.cat([output, lse[..., None]], dim=-1)
    for rank, x in enumerate(group.all_gather(packed)):
        part = x[..., :-1], x[..., -1]
        merged = merge(*merged, *part) if rank else part
    return merged[0].to(query.dtype)


def attend_linear_divided(
    query: Float[Tensor, "B H t D"],
    key: Float[Tensor, "B H t D"],
    value: Float[Tensor, "B H t E"],
    group: Group,
    features: FeatureMap = elu_plus_one,
) -> Float[Tensor, "B H t E"]:
    """Return this rank's part of causal linear attention.

    The ranks hold contiguous runs of positions, of any lengths. Each sends the
    sum of its own keys, and begins with the sum of those of earlier ranks.
    """
    _, phi_key = compute_features(query, key, value, features)
    sums = phi_key.transpose(-2, -1) @ append_ones(value)
    require_alike(group, state=tuple(sums.shape))
    every = exchange_parts([sums] * group.size, [sums.shape] * group.size, group)
    # A sum of none, on rank 0, depends on them too: it takes part backwards.
    before = torch.stack(every)[: group.rank].sum(dim=0)
    state, normalizer = before[..., :-1], before[..., -1]
    return attend_linear_chunked(query, key, value, state, normalizer, features).output
