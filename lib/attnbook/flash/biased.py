"""The second kernel: the first with another function of the scores.

A soft-cap, ALiBi, or one after the other. The kernels take the function as a
constant when they are compiled, as FlexAttention takes its `score_mod`, and it
returns beside the new scores their derivative by the old.

Chapter: chapters/11_flash_attention
Source: soft-cap: Gemma 2 (2024), section 2, https://arxiv.org/abs/2408.00118;
    ALiBi: Press et al. (2022), section 3, https://arxiv.org/abs/2108.12409
Axes: T queries, S keys, in either order; cap and slope in units of ln 2, as
    the scores
"""

import triton
import triton.language as tl


@triton.jit
def tanh(x):
    """Return tanh x: a series near 0, where the quotient loses digits."""
    square = x * x
    near = 1.0 + square * (
        -0.3333333333333333
        + square * (0.13333333333333333 + square * -0.05396825396825397)
    )
    raised = tl.exp2(x * 2.8853900817779268)
    far = 1.0 - 2.0 / (raised + 1.0)
    return tl.where(square < 0.01, x * near, far)


@triton.jit
def capped(scores, places, columns, slope, cap):
    """Return cap · tanh(scores / cap), and its derivative."""
    bent = tanh(scores / cap)
    return cap * bent, 1.0 - bent * bent


@triton.jit
def biased(scores, places, columns, slope, cap):
    """Return scores - slope · distance, and the derivative."""
    distance = tl.abs(columns - places).to(tl.float32)
    return scores - slope * distance, 1.0


@triton.jit
def capped_and_biased(scores, places, columns, slope, cap):
    """Return the capped scores with the bias added, and the derivative."""
    scores, change = capped(scores, places, columns, slope, cap)
    scores, _ = biased(scores, places, columns, slope, cap)
    return scores, change
