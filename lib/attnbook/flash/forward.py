"""The teaching kernel, forwards: one program walks one tile of queries.

Scores are kept in units of ln 2 (`scale` carries log₂ e), for the machine
raises 2 to a power, not e. Keys that all queries of the tile see are walked
without a mask; the edges of the window, of the past and of the text with one.

Chapter: chapters/11_flash_attention
Source: Dao (2023), algorithm 1, https://arxiv.org/abs/2307.08691 (there the
    logsumexp is natural, here it is to base 2); the split
    into edge and inside as in the tutorial that `attnbook.flash.tile` names
Axes: T queries, S keys, D width of query and key, E value width; `each` query
    heads share a head of keys; places are those of the queries among the keys
"""

import triton
import triton.language as tl

from attnbook.flash.tile import head_of, load, store, visible


@triton.jit
def walk(
    maximum, total, output, query, key, value, key_step, value_step,
    begin, end, places, length, window, scale, slope, cap,
    D: tl.constexpr, E: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
    CAUSAL: tl.constexpr, EDGE: tl.constexpr, CHANGE: tl.constexpr,
):  # fmt: skip
    """Bring some queries on from key `begin` to key `end`."""
    for start in range(begin, end, BLOCK_S):
        at, columns = places[:, None], (start + tl.arange(0, BLOCK_S))[None, :]
        keys = load(key, start, length, key_step, BLOCK_S, D, BLOCK_D)
        scores = tl.dot(query, keys.T) * scale
        scores, _ = CHANGE(scores, at, columns, slope, cap)
        if EDGE:
            seen = visible(at, columns, length, window, CAUSAL)
            scores = tl.where(seen, scores, float("-inf"))
        highest = tl.maximum(maximum, tl.max(scores, 1))
        # Of a query that saw nothing yet, -inf - -inf would be NaN.
        finite = tl.where(highest == float("-inf"), 0.0, highest)
        shrunk = tl.exp2(maximum - finite)
        raised = tl.exp2(scores - finite[:, None])
        total = total * shrunk + tl.sum(raised, 1)
        values = load(value, start, length, value_step, BLOCK_S, E, BLOCK_E)
        output = output * shrunk[:, None]
        output = tl.dot(raised.to(values.dtype), values, output)
        maximum = highest
    return maximum, total, output


@triton.jit(do_not_specialize=("T", "S", "heads", "each", "window"))
def forward(
    query, key, value, output, lse, lengths, slopes,
    query_steps, key_steps, value_steps, output_steps,
    T, S, heads, each, window, scale, cap,
    D: tl.constexpr, E: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
    CAUSAL: tl.constexpr, CHANGE: tl.constexpr,
):  # fmt: skip
    """Give one tile of queries its output and logsumexp."""
    tiles = tl.cdiv(T, BLOCK_T)
    bh = tl.program_id(0) // tiles
    b, h = bh // heads, bh % heads
    # The last tile first: in a causal text it has the most to do.
    row = (tiles - 1 - tl.program_id(0) % tiles) * BLOCK_T
    rows = row + tl.arange(0, BLOCK_T)
    key = head_of(key, key_steps, b, h // each)
    value = head_of(value, value_steps, b, h // each)
    query = head_of(query, query_steps, b, h)
    queries = load(query, row, T, query_steps[2], BLOCK_T, D, BLOCK_D)
    length, slope = tl.load(lengths + b), tl.load(slopes + bh)
    # Keys begin ... end - 1 are seen by some query, inside ... outside - 1 by
    # all of them.
    begin, inside, outside, end = 0, 0, length // BLOCK_S * BLOCK_S, length
    if CAUSAL:
        first, last = row + S - T, tl.minimum(row + BLOCK_T, T) - 1 + S - T
        begin = tl.maximum(first - window + 1, 0) // BLOCK_S * BLOCK_S
        inside = tl.cdiv(tl.maximum(last - window + 1, 0), BLOCK_S) * BLOCK_S
        outside = tl.maximum(tl.minimum(first + 1, length), 0) // BLOCK_S
        outside = tl.maximum(outside * BLOCK_S, inside)
        end = tl.minimum(last + 1, length)
    maximum = tl.full([BLOCK_T], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_T], tl.float32)
    made = tl.zeros([BLOCK_T, BLOCK_E], tl.float32)
    for part in tl.static_range(0 if CAUSAL else 1, 3):
        low = begin if part == 0 else (inside if part == 1 else outside)
        high = inside if part == 0 else (outside if part == 1 else end)
        maximum, total, made = walk(
            maximum, total, made, queries, key, value, key_steps[2],
            value_steps[2], low, tl.minimum(high, end), rows + S - T, length,
            window, scale, slope, cap, D, E, BLOCK_S, BLOCK_D, BLOCK_E,
            CAUSAL, part != 1, CHANGE,
        )  # fmt: skip
    some = tl.where(total == 0.0, 1.0, total)
    made, output = made / some[:, None], head_of(output, output_steps, b, h)
    store(made, output, row, T, output_steps[2], BLOCK_T, E, BLOCK_E)
    # To base 2, as the scores are: the way back raises 2 to the difference.
    place = lse + bh.to(tl.int64) * T + rows
    tl.store(place, maximum + tl.log2(some), mask=rows < T)
