"""What every kernel does with a tile: load it, store it, say who sees whom.

Chapter: chapters/11_flash_attention
Source: own work, after the tutorial of Triton,
    https://triton-lang.org/main/getting-started/tutorials/06-fused-attention.html
Axes: rows are queries or keys, lanes a row's numbers; WIDTH of them are real,
    LANES (a power of two) are held
"""

import triton
import triton.language as tl


@triton.jit
def places_of(
    base, first, count, step,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Return where a tile's numbers are, and which of them are there."""
    # first · step may pass 2³¹, so 64 bits; within a tile 32 are enough.
    corner = base + tl.cast(first, tl.int64) * step
    rows, lanes = tl.arange(0, ROWS)[:, None], tl.arange(0, LANES)[None, :]
    there = rows < count - first
    if WIDTH != LANES:
        there = there & (lanes < WIDTH)
    return corner + (rows * step + lanes), there


@triton.jit
def load(
    base, first, count, step,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Load some rows; zeros stand for rows and lanes that are not there."""
    places, there = places_of(base, first, count, step, ROWS, WIDTH, LANES)
    return tl.load(places, mask=there, other=0.0)


@triton.jit
def store(
    made, base, first, count, step,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Store some rows, without those and without lanes that are not there."""
    places, there = places_of(base, first, count, step, ROWS, WIDTH, LANES)
    tl.store(places, made.to(base.dtype.element_ty), mask=there)


@triton.jit
def head_of(base, steps, b, h):
    """Return where the rows of one head of one text begin."""
    b, h = tl.cast(b, tl.int64), tl.cast(h, tl.int64)
    return base + b * steps[0] + h * steps[1]


@triton.jit
def visible(places, columns, length, window, CAUSAL: tl.constexpr):
    """Tell which keys the queries at these places may see."""
    seen = columns < length
    if CAUSAL:
        seen = seen & (columns <= places) & (columns > places - window)
    return seen


@triton.jit
def as_it_is(scores, places, columns, slope, cap):
    """Leave the scores as they are; their derivative by themselves is 1."""
    return scores, 1.0
