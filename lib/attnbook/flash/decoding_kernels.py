"""The decoding kernels: one query a head attends to parts of its keys.

One program takes all query heads that share a head of keys, as the rows of one
tile (packed grouped heads): each key is loaded once for all of them. It
processes one part of the keys (split-KV), because one query a head gives too
few programs for a GPU. The second kernel merges the parts as
`attnbook.attention.tiled.merge` does, all of them at once.

Source: Dao, Haziza, Massa and Sizov (2023), Flash-Decoding,
    https://pytorch.org/blog/flash-decoding/; keys and values in pages: Kwon et
    al. (2023), section 4.1, https://arxiv.org/abs/2309.06180
Axes: H heads, S keys, D width of query and key, E value width; `each` query
    heads share a head of keys; a page has PAGE positions
"""

import triton
import triton.language as tl

from attnbook.flash.tile import head_pointer, key_length, load, store


@triton.jit
def load_from_pages(
    base, table, strides, g, first, count, pages,
    PAGE: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Load the rows of some positions, each from its page of the pool."""
    columns = first + tl.arange(0, ROWS)
    exist = columns < count
    numbers = tl.load(table + columns // PAGE, mask=exist, other=0)
    # The host does not read a table that is on a GPU: bounded here, no number
    # leads to memory outside the pool.
    numbers = tl.minimum(tl.maximum(numbers, 0), pages - 1)
    inside = columns % PAGE
    rows = head_pointer(base, strides, numbers, g)
    rows += tl.cast(inside, tl.int64) * strides[2]
    lanes = tl.arange(0, LANES)[None, :]
    valid = exist[:, None]
    if WIDTH != LANES:
        valid = valid & (lanes < WIDTH)
    return tl.load(rows[:, None] + lanes, mask=valid, other=0.0)


@triton.jit
def load_rows(
    base, table, strides, b, g, first, count, pages,
    PAGE: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Load some keys or values of a sequence, with a block table or without."""
    if table is None:
        head = head_pointer(base, strides, b, g)
        rows = load(head, first, count, strides[2], ROWS, WIDTH, LANES)
    else:
        rows = load_from_pages(
            base, table, strides, g, first, count, pages, PAGE, ROWS, WIDTH,
            LANES,
        )  # fmt: skip
    return rows


@triton.jit(do_not_specialize=("S", "groups", "each", "parts", "chunk", "pages"))
def attend_part(
    query, key, value, output, lse, lengths, table,
    query_strides, key_strides, value_strides,
    S, groups, each, parts, chunk, pages, scale,
    D: tl.constexpr, E: tl.constexpr, PAGE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Compute the attention of a group's queries to one part of its keys."""
    part = tl.program_id(0) % parts
    tile = tl.program_id(0) // parts
    tiles = tl.cdiv(each, ROWS)
    bg = tile // tiles
    b, g = bg // groups, bg % groups
    # The tile has the heads first ... stop - 1 at most.
    first, stop = g * each + tile % tiles * ROWS, (g + 1) * each
    head = head_pointer(query, query_strides, b, 0)
    queries = load(head, first, stop, query_strides[2], ROWS, D, BLOCK_D)
    if table is not None:
        table += tl.cast(b, tl.int64) * tl.cdiv(S, PAGE)
    begin = part * chunk
    end = tl.minimum(begin + chunk, key_length(lengths, b, S))
    maximum = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    result = tl.zeros([ROWS, BLOCK_E], tl.float32)
    for start in range(begin, end, BLOCK_S):
        keys = load_rows(
            key, table, key_strides, b, g, start, end, pages, PAGE, BLOCK_S, D,
            BLOCK_D,
        )  # fmt: skip
        scores = tl.dot(queries, keys.T) * scale
        columns = (start + tl.arange(0, BLOCK_S))[None, :]
        scores = tl.where(columns < end, scores, float("-inf"))
        highest = tl.maximum(maximum, tl.max(scores, 1))
        # Where all scores are -inf, -inf - -inf would be NaN.
        finite = tl.where(highest == float("-inf"), 0.0, highest)
        factor = tl.exp2(maximum - finite)
        exponentials = tl.exp2(scores - finite[:, None])
        total = total * factor + tl.sum(exponentials, 1)
        values = load_rows(
            value, table, value_strides, b, g, start, end, pages, PAGE, BLOCK_S,
            E, BLOCK_E,
        )  # fmt: skip
        result = result * factor[:, None]
        result = tl.dot(exponentials.to(values.dtype), values, result)
        maximum = highest
    divisor = tl.where(total == 0.0, 1.0, total)
    result = result / divisor[:, None]
    # Both outputs are contiguous: (B, H, parts, E) and (B, H, parts).
    heads = tl.cast(b, tl.int64) * groups * each
    output += (heads * parts + part) * E
    store(result, output, first, stop, parts * E, ROWS, E, BLOCK_E)
    # A natural logarithm, as `merge` expects.
    sums = (maximum + tl.log2(divisor)) * 0.6931471805599453
    rows = first + tl.arange(0, ROWS)
    tl.store(lse + (heads + rows) * parts + part, sums, mask=rows < stop)


@triton.jit(do_not_specialize=("parts",))
def merge_parts(
    output, lse, merged, parts,
    E: tl.constexpr, PARTS: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Merge the parts of one head of one sequence."""
    bh = tl.program_id(0).to(tl.int64)
    each = tl.arange(0, PARTS)
    sums = tl.load(lse + bh * parts + each, mask=each < parts, other=float("-inf"))
    outputs = load(output + bh * parts * E, 0, parts, E, PARTS, E, BLOCK_E)
    highest = tl.max(sums, 0)
    finite = tl.where(highest == float("-inf"), 0.0, highest)
    shares = tl.exp2((sums - finite) * 1.4426950408889634)
    total = tl.sum(shares, 0)
    shares = shares / tl.where(total == 0.0, 1.0, total)
    result = tl.sum(outputs * shares[:, None], 0)
    store(result[None, :], merged + bh * E, 0, 1, E, 1, E, BLOCK_E)
