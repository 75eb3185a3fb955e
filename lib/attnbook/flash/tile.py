"""What every kernel does with a tile: load it, store it, say who sees whom.

Chapter: chapters/11_flash_attention
Source: https://triton-lang.org/main/getting-started/tutorials/06-fused-attention.html
    (own work; one law with it: exp2 and a scale that carries log₂ e)
Axes: rows are queries or keys, lanes a row's numbers; WIDTH of them are real,
    BLOCK (a power of two) are held
"""

import triton
import triton.language as tl


@triton.jit
def load(base, rows, count, step, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Load some rows; zeros stand for rows and lanes that are not there."""
    lanes = tl.arange(0, BLOCK)[None, :]
    there = rows[:, None] < count
    if WIDTH != BLOCK:
        there = there & (lanes < WIDTH)
    # A number of rows times a step may pass 2³¹: 64 bits.
    place = base + rows[:, None].to(tl.int64) * step + lanes
    return tl.load(place, mask=there, other=0.0)


@triton.jit
def store(
    base, rows, count, step, made, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Store some rows, without those and without lanes that are not there."""
    lanes = tl.arange(0, BLOCK)[None, :]
    place = base + rows[:, None].to(tl.int64) * step + lanes
    there = (rows[:, None] < count) & (lanes < WIDTH)
    tl.store(place, made.to(base.dtype.element_ty), mask=there)


@triton.jit
def head_of(base, steps, b, h):
    """Return where the rows of one head of one text begin."""
    return base + b.to(tl.int64) * steps[0] + h.to(tl.int64) * steps[1]


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
