"""Score functions of the kernels: soft-cap and ALiBi.

They apply a soft-cap, ALiBi, or both to the scaled products of queries and
keys. The kernels take the function as a compile-time constant, as FlexAttention
takes its `score_mod`. It returns the scores, a scale that is still to be
multiplied (here 1, because it is already in the scores), and the derivative of
the scores with respect to the scaled products.

Source: soft-cap: Gemma 2 (2024), section 2, https://arxiv.org/abs/2408.00118;
    ALiBi: Press et al. (2022), section 3, https://arxiv.org/abs/2108.12409
Axes: T queries, S keys, in either order; cap and slope in units of ln 2, as
    the scores
"""

import triton
import triton.language as tl


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
