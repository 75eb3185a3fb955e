"""Helpers of all kernels: load a tile, store it, mask it, and score it.

A kernel takes its score function (soft-cap, ALiBi, both or neither) as a
compile-time constant, as FlexAttention takes its `score_mod`. The function
returns the scores, a scale that is still to be multiplied, and the derivative
of the scores with respect to the scaled products.

Source: after the tutorial of Triton,
    https://triton-lang.org/main/getting-started/tutorials/06-fused-attention.html
Axes: rows are queries or keys, lanes the entries of a row: WIDTH of them
    exist, and LANES (the next power of two) are loaded; cap and slope are in
    units of ln 2, as the scores are; offsets say where packed sequences begin,
    and without packing they are None, as is the number of sequences
"""

import triton
import triton.language as tl


@triton.jit
def tile_pointers(
    base, first, count, stride,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Return the pointers to a tile's entries, and which of them exist."""
    # first · stride may exceed 2³¹, so 64 bits; within a tile 32 are enough.
    corner = base + tl.cast(first, tl.int64) * stride
    rows, lanes = tl.arange(0, ROWS)[:, None], tl.arange(0, LANES)[None, :]
    valid = rows < count - first
    if WIDTH != LANES:
        valid = valid & (lanes < WIDTH)
    return corner + (rows * stride + lanes), valid


@triton.jit
def load(
    base, first, count, stride,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr,
    EDGE: tl.constexpr = True,
):  # fmt: skip
    """Load some rows; rows and lanes that do not exist are zeros.

    Without EDGE all rows exist, and none is compared with their count.
    """
    pointers, valid = tile_pointers(base, first, count, stride, ROWS, WIDTH, LANES)
    if EDGE or WIDTH != LANES:
        tile = tl.load(pointers, mask=valid, other=0.0)
    else:
        tile = tl.load(pointers)
    return tile


@triton.jit
def load_keys(
    base, tiles, b, g, past, first, count, stride,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr,
    EDGE: tl.constexpr,
):  # fmt: skip
    """Load some keys or values: where all exist, by a descriptor if there is one."""
    if EDGE or tiles is None:
        tile = load(base, first, count, stride, ROWS, WIDTH, LANES, EDGE)
    else:
        tile = tiles.load([b, g, past + first, 0]).reshape(ROWS, LANES)
    return tile


@triton.jit
def store(
    tile, base, first, count, stride,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Store some rows, except for rows and lanes that do not exist."""
    pointers, valid = tile_pointers(base, first, count, stride, ROWS, WIDTH, LANES)
    tl.store(pointers, tile.to(base.dtype.element_ty), mask=valid)


@triton.jit
def head_pointer(base, strides, b, h, first=0):
    """Return the pointer to the first row of one head of one sequence."""
    b, h = tl.cast(b, tl.int64), tl.cast(h, tl.int64)
    within = tl.cast(first, tl.int64) * strides[2]
    return base + b * strides[0] + h * strides[1] + within


@triton.jit
def count_tiles(rows, sequences, BLOCK: tl.constexpr):
    """Return how many tiles of rows there are, or may be in packed sequences."""
    tiles = tl.cdiv(rows, BLOCK)
    if sequences is not None:
        tiles = rows // BLOCK + sequences + 1
    return tiles


@triton.jit
def find_rows(offsets, i, sequences, count, rest):
    """Return where packed sequence i begins, and how many rows it has.

    The host does not read offsets that are on a GPU, so they are bounded here.
    Rows after the last offset are those of one more sequence, up to `rest`.
    """
    first = tl.minimum(tl.maximum(tl.load(offsets + i), 0), count)
    end = tl.load(offsets + i + 1, mask=i < sequences, other=rest)
    return first, tl.minimum(tl.maximum(end, first), count) - first


@triton.jit
def find_tile(
    offsets, others, tile, sequences, rows, columns, BLOCK: tl.constexpr
):  # fmt: skip
    """Return which rows a tile has, and which columns they have to do with.

    No count of tiles has to be known: sequence i takes those from number
    offsets[i] // BLOCK + i on, at least as many as it needs. A tile of no rows
    gets no columns; nor do rows after the last sequence.

    Returns:
        row, first, rows, past, columns: the tile's first row in its sequence,
            the sequence's first row and number of rows; likewise of columns.
    """
    row, first, past = tile * BLOCK, 0, 0
    if offsets is not None:
        low, high = 0, sequences
        while low < high:
            middle = (low + high + 1) // 2
            begun = tl.load(offsets + middle) // BLOCK + middle <= tile
            low = tl.where(begun, middle, low)
            high = tl.where(begun, high, middle - 1)
        before = tl.maximum(tl.load(offsets + low), 0) // BLOCK + low
        row = tl.maximum(tile - before, 0) * BLOCK
        first, rows = find_rows(offsets, low, sequences, rows, rows)
        past, columns = find_rows(others, low, sequences, columns, 0)
        columns = tl.where(row < rows, columns, 0)
    return row, first, rows, past, columns


@triton.jit
def key_length(lengths, b, S, sequences=None):
    """Return how many keys of a sequence are not padding; S unless given.

    The host does not read lengths that are on a GPU, so they are clamped here.
    """
    # This is S; the separate value saves registers in the backward pass. Of
    # packed sequences, S may be 0.
    length = tl.maximum(S, 1 if sequences is None else 0)
    if lengths is not None:
        length = tl.minimum(tl.maximum(tl.load(lengths + b), 0), S)
    return length


@triton.jit
def head_slope(slopes, bh):
    """Return the slope of a head of a sequence, 0 unless given."""
    slope = 0.0
    if slopes is not None:
        slope = tl.load(slopes + bh)
    return slope


@triton.jit
def key_ranges(
    row, T, S, length, window,
    BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Return which keys the queries of a tile can attend to.

    Returns:
        begin, inside, outside, end: some query can attend to keys
            begin ... end - 1, all of them to keys inside ... outside - 1.
    """
    begin, inside, outside, end = 0, 0, length // BLOCK_S * BLOCK_S, length
    if CAUSAL:
        first, last = row + S - T, tl.minimum(row + BLOCK_T, T) - 1 + S - T
        begin = tl.maximum(first - window + 1, 0) // BLOCK_S * BLOCK_S
        inside = tl.cdiv(tl.maximum(last - window + 1, 0), BLOCK_S) * BLOCK_S
        outside = tl.maximum(tl.minimum(first + 1, length), 0) // BLOCK_S
        outside = tl.maximum(outside * BLOCK_S, inside)
        end = tl.minimum(last + 1, length)
    return begin, inside, outside, end


@triton.jit
def query_ranges(
    column, T, S, length, window,
    BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Return which queries can attend to the keys of a tile.

    Returns:
        begin, inside, outside, end: queries begin ... end - 1 can attend to
            some key of the tile, queries inside ... outside - 1 to all of them
            that are not padding.
    """
    begin, inside, outside, end = 0, 0, T // BLOCK_T * BLOCK_T, T
    if CAUSAL:
        first = column - S + T  # the query with the position of the first key
        begin = tl.maximum(first, 0) // BLOCK_T * BLOCK_T
        inside = tl.cdiv(tl.maximum(first + BLOCK_S - 1, 0), BLOCK_T) * BLOCK_T
        outside = tl.minimum(tl.maximum(first + window, 0), T) // BLOCK_T
        outside = tl.maximum(outside * BLOCK_T, inside)
        end = tl.minimum(T, first + window + BLOCK_S - 1)
    return begin, inside, outside, tl.where(column < length, end, 0)


@triton.jit
def can_attend(positions, columns, length, window, CAUSAL: tl.constexpr):
    """Return which keys the queries at these positions can attend to."""
    mask = columns < length
    if CAUSAL:
        mask = mask & (columns <= positions) & (columns > positions - window)
    return mask


@triton.jit
def scale_later(scores, positions, columns, scale, slope, cap):
    """Return the products, the scale that is still to be multiplied, and 1.

    One instruction then multiplies by the scale and subtracts the maximum. It
    is the maximum of the scaled scores only if the scale is above 0.
    """
    return scores, scale, 1.0


@triton.jit
def scale_now(scores, positions, columns, scale, slope, cap):
    """Return the scaled products, no further scale, and the derivative 1."""
    return scores * scale, 1.0, 1.0


@triton.jit
def tanh(x):
    """Return tanh x: a series near 0, where the quotient is inaccurate."""
    square = x * x
    near = 1.0 + square * (
        -0.3333333333333333
        + square * (0.13333333333333333 + square * -0.05396825396825397)
    )
    exponential = tl.exp2(x * 2.8853900817779268)
    far = 1.0 - 2.0 / (exponential + 1.0)
    return tl.where(square < 0.01, x * near, far)


@triton.jit
def apply_softcap(scores, positions, columns, scale, slope, cap):
    """Return cap · tanh(scale · scores / cap), and its derivative."""
    squashed = tanh(scores * (scale / cap))
    return cap * squashed, 1.0, 1.0 - squashed * squashed


@triton.jit
def apply_alibi(scores, positions, columns, scale, slope, cap):
    """Return scale · scores - slope · distance, and the derivative."""
    distance = tl.abs(columns - positions).to(tl.float32)
    return scores * scale - slope * distance, 1.0, 1.0


@triton.jit
def apply_softcap_and_alibi(scores, positions, columns, scale, slope, cap):
    """Return the capped scores with the bias added, and the derivative."""
    scores, one, derivative = apply_softcap(
        scores, positions, columns, scale, slope, cap
    )
    scores, _, _ = apply_alibi(scores, positions, columns, one, slope, cap)
    return scores, one, derivative
