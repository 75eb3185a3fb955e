"""The backward kernels: weights recomputed from the saved logsumexp.

There are two kernels. One iterates over the queries for a tile of keys and
values, the other over the keys for a tile of queries, so that no two programs
add to the same number. The cost is that the scores are computed twice: 7 matrix
products instead of 5. The second runs first: it also computes the average that
a query's weights take of the products of its upstream gradient and the values,
and stores it for the other. As in the forward kernel, only tiles at the edge of
the mask are masked.

Source: Dao et al. (2022), appendix B.2 and algorithm 4,
    https://arxiv.org/abs/2205.14135, from one logsumexp: Dao (2023), algorithm
    2, https://arxiv.org/abs/2307.08691 (in section 3.2 one kernel, whose
    programs add to the queries' gradient atomically)
Axes: T queries, S keys, D width of query and key, E value width; `each` query
    heads share a head of keys; positions are those of the queries among the
    keys
"""

import triton
import triton.language as tl

from attnbook.flash.tile import (
    can_attend,
    count_tiles,
    find_tile,
    head_pointer,
    head_slope,
    key_length,
    key_ranges,
    load,
    query_ranges,
    store,
)


@triton.jit(do_not_specialize=("T", "S", "heads", "each", "window", "sequences"))
def key_value_gradient(
    query, key, value, upstream, lse, average, dkey, dvalue, lengths, slopes,
    query_offsets, key_offsets, sequences,
    query_strides, key_strides, value_strides, upstream_strides, dkey_strides,
    dvalue_strides, T, S, heads, each, window, scale, unit, cap,
    D: tl.constexpr, E: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
    CAUSAL: tl.constexpr, SCORE_FUNCTION: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of one tile of keys and values of a group."""
    tiles, all_queries = count_tiles(S, sequences, BLOCK_S), T
    groups = heads // each
    bg = tl.program_id(0) // tiles
    b, g = bg // groups, bg % groups
    tile = tl.program_id(0) % tiles
    column, past, S, first, T = find_tile(
        key_offsets, query_offsets, tile, sequences, S, T, BLOCK_S
    )
    columns = column + tl.arange(0, BLOCK_S)
    length = key_length(lengths, b, S, sequences)
    key = head_pointer(key, key_strides, b, g, past)
    value = head_pointer(value, value_strides, b, g, past)
    keys = load(key, column, length, key_strides[2], BLOCK_S, D, BLOCK_D)
    values = load(value, column, length, value_strides[2], BLOCK_S, E, BLOCK_E)
    # Queries begin ... end - 1 can attend to some key of the tile, and queries
    # inside ... outside - 1 to all that are not padding.
    begin, inside, outside, end = query_ranges(
        column, T, S, length, window, BLOCK_T, BLOCK_S, CAUSAL
    )
    dk = tl.zeros([BLOCK_S, BLOCK_D], tl.float32)
    dv = tl.zeros([BLOCK_S, BLOCK_E], tl.float32)
    for member in range(each):
        h = g * each + member
        slope = head_slope(slopes, b * heads + h)
        at = (b * heads + h).to(tl.int64) * all_queries + first
        query_head = head_pointer(query, query_strides, b, h, first)
        upstream_head = head_pointer(upstream, upstream_strides, b, h, first)
        for row in range(begin, end, BLOCK_T):
            rows = row + tl.arange(0, BLOCK_T)
            positions, keys_at = (rows + S - T)[None, :], columns[:, None]
            queries = load(query_head, row, T, query_strides[2], BLOCK_T, D, BLOCK_D)
            # Rows beyond the last query: a logsumexp of inf, so weights of 0.
            sums = tl.load(lse + at + rows, mask=rows < T, other=float("inf"))
            means = tl.load(average + at + rows, mask=rows < T, other=0.0)
            scores, rest, derivative = SCORE_FUNCTION(
                tl.dot(keys, queries.T), positions, keys_at, scale, slope, cap
            )
            weights = tl.exp2(scores * rest - sums[None, :])
            # CAUSAL is known when this is compiled, the rest is not.
            if CAUSAL:  # noqa: SIM102
                if (row < inside) | (row >= outside):
                    mask = can_attend(positions, keys_at, S, window, CAUSAL)
                    weights = tl.where(mask, weights, 0.0)
            upstreams = load(
                upstream_head, row, T, upstream_strides[2], BLOCK_T, E, BLOCK_E
            )
            dv = tl.dot(weights.to(upstreams.dtype), upstreams, dv)
            dweights = tl.dot(values, upstreams.T)
            dscores = weights * (dweights - means[None, :]) * derivative
            dk = tl.dot(dscores.to(queries.dtype), queries, dk)
    # Padding was not masked so far: each key has a row of its own in the sums.
    kept = (columns < length)[:, None]
    dk, dv = tl.where(kept, dk * unit, 0.0), tl.where(kept, dv, 0.0)
    dkey = head_pointer(dkey, dkey_strides, b, g, past)
    dvalue = head_pointer(dvalue, dvalue_strides, b, g, past)
    store(dk, dkey, column, S, dkey_strides[2], BLOCK_S, D, BLOCK_D)
    store(dv, dvalue, column, S, dvalue_strides[2], BLOCK_S, E, BLOCK_E)


@triton.jit(do_not_specialize=("T", "S", "heads", "each", "window", "sequences"))
def query_gradient(
    query, key, value, upstream, lse, average, output, dquery, lse_upstream,
    lengths, slopes, query_offsets, key_offsets, sequences,
    query_strides, key_strides, value_strides, upstream_strides, output_strides,
    dquery_strides,
    T, S, heads, each, window, scale, unit, cap,
    D: tl.constexpr, E: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
    CAUSAL: tl.constexpr, SCORE_FUNCTION: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of one tile of queries, and their averages."""
    tiles, all_queries = count_tiles(T, sequences, BLOCK_T), T
    bh = tl.program_id(0) // tiles
    b, h = bh // heads, bh % heads
    tile = tiles - 1 - tl.program_id(0) % tiles
    row, first, T, past, S = find_tile(
        query_offsets, key_offsets, tile, sequences, T, S, BLOCK_T
    )
    rows = row + tl.arange(0, BLOCK_T)
    at = bh.to(tl.int64) * all_queries + first + rows
    length, slope = key_length(lengths, b, S, sequences), head_slope(slopes, bh)
    key = head_pointer(key, key_strides, b, h // each, past)
    value = head_pointer(value, value_strides, b, h // each, past)
    query_head = head_pointer(query, query_strides, b, h, first)
    queries = load(query_head, row, T, query_strides[2], BLOCK_T, D, BLOCK_D)
    upstream_head = head_pointer(upstream, upstream_strides, b, h, first)
    upstreams = load(upstream_head, row, T, upstream_strides[2], BLOCK_T, E, BLOCK_E)
    sums = tl.load(lse + at, mask=rows < T, other=float("inf"))[:, None]
    output_head = head_pointer(output, output_strides, b, h, first)
    outputs = load(output_head, row, T, output_strides[2], BLOCK_T, E, BLOCK_E)
    means = tl.sum(outputs.to(tl.float32) * upstreams.to(tl.float32), 1)
    if lse_upstream is not None:
        # The derivative of the logsumexp by a score is the score's weight.
        means -= tl.load(lse_upstream + at, mask=rows < T, other=0.0)
    tl.store(average + at, means, mask=rows < T)
    means, positions = means[:, None], (rows + S - T)[:, None]
    begin, inside, outside, end = key_ranges(
        row, T, S, length, window, BLOCK_T, BLOCK_S, CAUSAL
    )
    dq = tl.zeros([BLOCK_T, BLOCK_D], tl.float32)
    for part in tl.static_range(0 if CAUSAL else 1, 3):
        low = begin if part == 0 else (inside if part == 1 else outside)
        high = inside if part == 0 else (outside if part == 1 else end)
        for column in range(low, tl.minimum(high, end), BLOCK_S):
            columns = (column + tl.arange(0, BLOCK_S))[None, :]
            keys = load(
                key, column, length, key_strides[2], BLOCK_S, D, BLOCK_D,
                part != 1,
            )  # fmt: skip
            scores, rest, derivative = SCORE_FUNCTION(
                tl.dot(queries, keys.T), positions, columns, scale, slope, cap
            )
            weights = tl.exp2(scores * rest - sums)
            if part != 1:
                mask = can_attend(positions, columns, length, window, CAUSAL)
                weights = tl.where(mask, weights, 0.0)
            values = load(
                value, column, length, value_strides[2], BLOCK_S, E, BLOCK_E,
                part != 1,
            )  # fmt: skip
            dweights = tl.dot(upstreams, values.T)
            dscores = weights * (dweights - means) * derivative
            dq = tl.dot(dscores.to(keys.dtype), keys, dq)
    dquery = head_pointer(dquery, dquery_strides, b, h, first)
    store(dq * unit, dquery, row, T, dquery_strides[2], BLOCK_T, D, BLOCK_D)
