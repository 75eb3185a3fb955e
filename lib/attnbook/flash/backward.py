"""The teaching kernel, backwards: weights again from the saved logsumexp.

Two kernels. One walks the queries for a tile of keys and values, one the keys
for a tile of queries, so that no two programs add to the same number. Price:
the scores are made twice, 7 products of matrices instead of 5.

Chapter: chapters/11_flash_attention
Source: Dao et al. (2022), appendix B.2 and algorithm 4,
    https://arxiv.org/abs/2205.14135, from one logsumexp: Dao (2023), algorithm
    2, https://arxiv.org/abs/2307.08691 (in section 3.2 one kernel, whose
    programs add to the queries' gradient atomically)
Axes: T queries, S keys, D width of query and key, E value width; `each` query
    heads share a head of keys; places are those of the queries among the keys
"""

import triton
import triton.language as tl

from attnbook.flash.tile import head_of, load, store, visible


@triton.jit(do_not_specialize=("T", "S", "heads", "each", "window"))
def key_value_gradient(
    query, key, value, upstream, lse, average, dkey, dvalue, lengths, slopes,
    query_steps, key_steps, value_steps, upstream_steps, dkey_steps,
    dvalue_steps, T, S, heads, each, window, scale, unit, cap,
    D: tl.constexpr, E: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
    CAUSAL: tl.constexpr, CHANGE: tl.constexpr,
):  # fmt: skip
    """Give one tile of keys and values of a group its gradients."""
    tiles = tl.cdiv(S, BLOCK_S)
    groups = heads // each
    bg = tl.program_id(0) // tiles
    b, g = bg // groups, bg % groups
    column = tl.program_id(0) % tiles * BLOCK_S
    columns = column + tl.arange(0, BLOCK_S)
    length = tl.load(lengths + b)
    key = head_of(key, key_steps, b, g)
    value = head_of(value, value_steps, b, g)
    keys = load(key, column, length, key_steps[2], BLOCK_S, D, BLOCK_D)
    values = load(value, column, length, value_steps[2], BLOCK_S, E, BLOCK_E)
    # Queries begin ... end - 1 are those that see any key of the tile.
    begin, end = 0, tl.where(column < length, T, 0)
    if CAUSAL:
        begin = tl.maximum(column - S + T, 0) // BLOCK_T * BLOCK_T
        end = tl.minimum(end, column + BLOCK_S - 1 + window - S + T)
    dk = tl.zeros([BLOCK_S, BLOCK_D], tl.float32)
    dv = tl.zeros([BLOCK_S, BLOCK_E], tl.float32)
    for member in range(each):
        h = g * each + member
        slope = tl.load(slopes + b * heads + h)
        at = (b * heads + h).to(tl.int64) * T
        ask = head_of(query, query_steps, b, h)
        up = head_of(upstream, upstream_steps, b, h)
        for row in range(begin, end, BLOCK_T):
            rows = row + tl.arange(0, BLOCK_T)
            places, below = (rows + S - T)[None, :], columns[:, None]
            queries = load(ask, row, T, query_steps[2], BLOCK_T, D, BLOCK_D)
            ups = load(up, row, T, upstream_steps[2], BLOCK_T, E, BLOCK_E)
            sums = tl.load(lse + at + rows, mask=rows < T, other=0.0)
            means = tl.load(average + at + rows, mask=rows < T, other=0.0)
            scores = tl.dot(keys, queries.T) * scale
            scores, change = CHANGE(scores, places, below, slope, cap)
            seen = visible(places, below, length, window, CAUSAL)
            weights = tl.where(seen, tl.exp2(scores - sums[None, :]), 0.0)
            dv = tl.dot(weights.to(ups.dtype), ups, dv)
            dweights = tl.dot(values, ups.T)
            dscores = weights * (dweights - means[None, :]) * change
            dk = tl.dot(dscores.to(queries.dtype), queries, dk)
    dkey = head_of(dkey, dkey_steps, b, g)
    dvalue = head_of(dvalue, dvalue_steps, b, g)
    store(dk * unit, dkey, column, S, dkey_steps[2], BLOCK_S, D, BLOCK_D)
    store(dv, dvalue, column, S, dvalue_steps[2], BLOCK_S, E, BLOCK_E)


@triton.jit(do_not_specialize=("T", "S", "heads", "each", "window"))
def query_gradient(
    query, key, value, upstream, lse, average, dquery, lengths, slopes,
    query_steps, key_steps, value_steps, upstream_steps, dquery_steps,
    T, S, heads, each, window, scale, unit, cap,
    D: tl.constexpr, E: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
    CAUSAL: tl.constexpr, CHANGE: tl.constexpr,
):  # fmt: skip
    """Give one tile of queries its gradient."""
    tiles = tl.cdiv(T, BLOCK_T)
    bh = tl.program_id(0) // tiles
    b, h = bh // heads, bh % heads
    row = (tiles - 1 - tl.program_id(0) % tiles) * BLOCK_T
    rows = row + tl.arange(0, BLOCK_T)
    at = bh.to(tl.int64) * T + rows
    length, slope = tl.load(lengths + b), tl.load(slopes + bh)
    key = head_of(key, key_steps, b, h // each)
    value = head_of(value, value_steps, b, h // each)
    ask = head_of(query, query_steps, b, h)
    queries = load(ask, row, T, query_steps[2], BLOCK_T, D, BLOCK_D)
    up = head_of(upstream, upstream_steps, b, h)
    ups = load(up, row, T, upstream_steps[2], BLOCK_T, E, BLOCK_E)
    sums = tl.load(lse + at, mask=rows < T, other=0.0)[:, None]
    means = tl.load(average + at, mask=rows < T, other=0.0)[:, None]
    places = (rows + S - T)[:, None]
    begin, end = 0, length
    if CAUSAL:
        begin = tl.maximum(row + S - T - window + 1, 0) // BLOCK_S * BLOCK_S
        end = tl.minimum(length, tl.minimum(row + BLOCK_T, T) + S - T)
    dq = tl.zeros([BLOCK_T, BLOCK_D], tl.float32)
    for column in range(begin, end, BLOCK_S):
        columns = column + tl.arange(0, BLOCK_S)
        keys = load(key, column, length, key_steps[2], BLOCK_S, D, BLOCK_D)
        values = load(
            value, column, length, value_steps[2], BLOCK_S, E, BLOCK_E
        )
        scores = tl.dot(queries, keys.T) * scale
        scores, change = CHANGE(scores, places, columns[None, :], slope, cap)
        seen = visible(places, columns[None, :], length, window, CAUSAL)
        weights = tl.where(seen, tl.exp2(scores - sums), 0.0)
        dweights = tl.dot(ups, values.T)
        dscores = weights * (dweights - means) * change
        dq = tl.dot(dscores.to(keys.dtype), keys, dq)
    dquery = head_of(dquery, dquery_steps, b, h)
    store(dq * unit, dquery, row, T, dquery_steps[2], BLOCK_T, D, BLOCK_D)
