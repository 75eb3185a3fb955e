"""The forward kernel: one program computes one tile of queries.

Scores are kept in units of ln 2 (`scale` carries log₂ e), because the GPU has
an instruction for powers of 2, not of e. Tiles of keys that all queries of the
tile can attend to need no mask; tiles at the edge of the window, of the causal
mask or of the sequence do.

Source: Dao (2023), algorithm 1, https://arxiv.org/abs/2307.08691 (there the
    logsumexp is natural, here it is to base 2); the split
    into masked and unmasked tiles as in the tutorial that `attnbook.flash.tile`
    names
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
    load_keys,
    store,
)


@triton.jit
def process_keys(
    maximum, total, output, query, key, value, key_stride, value_stride,
    key_tiles, value_tiles, b, g, past, begin, end,
    positions, length, window, scale, slope, cap,
    D: tl.constexpr, E: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, SCORE_FUNCTION: tl.constexpr,
):  # fmt: skip
    """Update the online softmax of some queries with keys begin ... end - 1."""
    for start in range(begin, end, BLOCK_S):
        at = positions[:, None]
        columns = (start + tl.arange(0, BLOCK_S))[None, :]
        keys = load_keys(
            key, key_tiles, b, g, past, start, length, key_stride,
            BLOCK_S, D, BLOCK_D, MASKED,
        )  # fmt: skip
        scores, rest, _ = SCORE_FUNCTION(
            tl.dot(query, keys.T), at, columns, scale, slope, cap
        )
        if MASKED:
            mask = can_attend(at, columns, length, window, CAUSAL)
            scores = tl.where(mask, scores, float("-inf"))
        highest = tl.maximum(maximum, tl.max(scores, 1) * rest)
        # For a query without any key so far, -inf - -inf would be NaN.
        finite = tl.where(highest == float("-inf"), 0.0, highest)
        factor = tl.exp2(maximum - finite)
        exponentials = tl.exp2(scores * rest - finite[:, None])
        total = total * factor + tl.sum(exponentials, 1)
        values = load_keys(
            value, value_tiles, b, g, past, start, length, value_stride,
            BLOCK_S, E, BLOCK_E, MASKED,
        )  # fmt: skip
        output = output * factor[:, None]
        output = tl.dot(exponentials.to(values.dtype), values, output)
        maximum = highest
    return maximum, total, output


@triton.jit(do_not_specialize=("T", "S", "heads", "each", "window", "sequences"))
def forward(
    query, key, value, output, lse, lengths, slopes,
    query_offsets, key_offsets, sequences, key_tiles, value_tiles,
    query_strides, key_strides, value_strides, output_strides,
    T, S, heads, each, window, scale, cap,
    D: tl.constexpr, E: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
    CAUSAL: tl.constexpr, SCORE_FUNCTION: tl.constexpr,
):  # fmt: skip
    """Give one tile of queries its output and logsumexp."""
    tiles, all_queries = count_tiles(T, sequences, BLOCK_T), T
    bh = tl.program_id(0) // tiles
    b, h = bh // heads, bh % heads
    # The last tile first: under a causal mask it has the most work.
    tile = tiles - 1 - tl.program_id(0) % tiles
    row, first, T, past, S = find_tile(
        query_offsets, key_offsets, tile, sequences, T, S, BLOCK_T
    )
    rows = row + tl.arange(0, BLOCK_T)
    key = head_pointer(key, key_strides, b, h // each, past)
    value = head_pointer(value, value_strides, b, h // each, past)
    query = head_pointer(query, query_strides, b, h, first)
    queries = load(query, row, T, query_strides[2], BLOCK_T, D, BLOCK_D)
    length, slope = key_length(lengths, b, S, sequences), head_slope(slopes, bh)
    # Some query can attend to keys begin ... end - 1, and all of them to keys
    # inside ... outside - 1.
    begin, inside, outside, end = key_ranges(
        row, T, S, length, window, BLOCK_T, BLOCK_S, CAUSAL
    )
    maximum = tl.full([BLOCK_T], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_T], tl.float32)
    result = tl.zeros([BLOCK_T, BLOCK_E], tl.float32)
    for part in tl.static_range(0 if CAUSAL else 1, 3):
        low = begin if part == 0 else (inside if part == 1 else outside)
        high = inside if part == 0 else (outside if part == 1 else end)
        maximum, total, result = process_keys(
            maximum, total, result, queries, key, value, key_strides[2],
            value_strides[2], key_tiles, value_tiles, b, h // each, past,
            low, tl.minimum(high, end), rows + S - T, length, window, scale, slope,
            cap, D, E, BLOCK_S, BLOCK_D, BLOCK_E, CAUSAL, part != 1, SCORE_FUNCTION,
        )  # fmt: skip
    divisor = tl.where(total == 0.0, 1.0, total)
    result = result / divisor[:, None]
    output = head_pointer(output, output_strides, b, h, first)
    store(result, output, row, T, output_strides[2], BLOCK_T, E, BLOCK_E)
    # To base 2, as the scores are: the backward pass computes 2^difference.
    pointer = lse + (bh.to(tl.int64) * all_queries + first) + rows
    tl.store(pointer, maximum + tl.log2(divisor), mask=rows < T)
