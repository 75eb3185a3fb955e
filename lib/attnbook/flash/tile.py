"""Helpers of all kernels: load a tile, store it, and apply the mask.

Source: after the tutorial of Triton,
    https://triton-lang.org/main/getting-started/tutorials/06-fused-attention.html
Axes: rows are queries or keys, lanes the entries of a row: WIDTH of them
    exist, and LANES (the next power of two) are loaded
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
):  # fmt: skip
    """Load some rows; rows and lanes that do not exist are zeros."""
    pointers, valid = tile_pointers(
        base, first, count, stride, ROWS, WIDTH, LANES
    )
    return tl.load(pointers, mask=valid, other=0.0)


@triton.jit
def store(
    tile, base, first, count, stride,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Store some rows, except for rows and lanes that do not exist."""
    pointers, valid = tile_pointers(
        base, first, count, stride, ROWS, WIDTH, LANES
    )
    tl.store(pointers, tile.to(base.dtype.element_ty), mask=valid)


@triton.jit
def head_pointer(base, strides, b, h):
    """Return the pointer to the first row of one head of one sequence."""
    b, h = tl.cast(b, tl.int64), tl.cast(h, tl.int64)
    return base + b * strides[0] + h * strides[1]


@triton.jit
def key_length(lengths, b, S):
    """Return how many keys of a sequence are not padding; S unless given.

    The host does not read lengths that are on a GPU, so they are clamped here.
    """
    # This is S; the separate value saves registers in the backward pass.
    length = tl.maximum(S, 1)
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
def can_attend(positions, columns, length, window, CAUSAL: tl.constexpr):
    """Return which keys the queries at these positions can attend to."""
    mask = columns < length
    if CAUSAL:
        mask = mask & (columns <= positions) & (columns > positions - window)
    return mask


@triton.jit
def keep_scores(scores, positions, columns, slope, cap):
    """Return the scores unchanged, and their derivative, which is 1."""
    return scores, 1.0
