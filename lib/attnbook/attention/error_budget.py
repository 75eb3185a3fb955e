"""Error budgets: how far rounding can carry a result, on any IEEE machine.

A number stored with p significant bits is rounded by a relative error of at
most the **unit roundoff** u = 2⁻ᵖ, half of `torch.finfo(dtype).eps`. A sum of
n products passes each product through at most n roundings, in whatever order
the sum is taken and whether or not a multiplication is fused with an addition:

    |computed Σ aᵢbᵢ - Σ aᵢbᵢ| ≤ γₙ Σ |aᵢ||bᵢ|,   1 + γₙ = (1 - u)⁻ⁿ.

The scale is that of the *terms*. Where terms cancel, the result is smaller
than its own error, so no multiple of the result can bound it.

`error_budget` runs a formula in double precision, forward and backward, and
carries beside every number x a bound e on its error (a running error
analysis). One rule for each operation of PyTorch:

    matrix product  |A|E_B + E_A(|B| + E_B) + γₙ (|A| + E_A)(|B| + E_B)
    a + b, a · b    errors of a and b, and γ₂ of |a| + |b|, or of |a||b|
    softmax         exp(s + δ) = exp(s) exp(δ): the *absolute* error of a score
                    is the *relative* error of its weight. A weight is divided
                    by a sum of such, so with ρⱼ = e(sⱼ) + roundings it lies
                    between pⱼ exp(-τⱼ) and pⱼ exp(τⱼ), where
                    τⱼ = ρⱼ + log Σₖ pₖ exp(ρₖ) + roundings.
    its gradient    dS = P ∘ (dP - c) with c = Σₖ pₖ dPₖ subtracts two numbers
                    of the size of C = Σₖ pₖ Σ|dO||v|, which is therefore the
                    scale of its error, also where c is computed as Σ dO ∘ O.

What is summed is rounded in the precision of the sums (`accumulate`), what is
stored in the precision of the results. Each result is charged twice for being
stored, a factor three times, so that the bound also holds for implementations
with one intermediate result more: scaled before or after the product or half
on each side, divided before or after the sum, with saved logsumexp, with
scores and weights rounded to half precision in between. An online softmax
multiplies earlier sums once a tile: `tiles`.

Tiles and GPU kernels keep more than that bound assumes: their scores, weights
and sums stay in float32 (`between`), and only the factors of a matrix product
and the results are rounded to half precision, each once. With u that of half
precision, four errors are then added to the rules, which are otherwise applied
with the unit roundoff of float32:

    weights         u · P, before P multiplies the values and dO
    mean of dP      u · (C + its error), where c is taken from the rounded
                    output: |O| ≤ Σₖ pₖ |v|, so Σ|dO||O| ≤ C
    dS              u · |dS|, before dS multiplies keys and queries
    each result x   u · (|x| + e)

Scores are then known to float32's precision, not to that of half precision.
For bfloat16, in which scores are known to 2⁻⁸ of Σ|q||k| at best, this is the
difference between finding and missing a scale that is wrong by a tenth.

Source: Higham (2002), Accuracy and Stability of Numerical Algorithms, second
    edition, sections 3.1 (γₙ and sums of products), 3.3 (running error
    analysis) and 2.2 (the model of floating-point arithmetic), without its
    truncation to first order.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnbook.attention.running_errors import ErrorBounds


class Bounded(NamedTuple):
    """A tensor in double precision, and how far a right one may lie from it.

    Attributes:
        truth: the values.
        allowed: the largest absolute error of each.
    """

    truth: Tensor
    allowed: Tensor


def error_budget(
    function: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    upstream: Tensor,
    dtype: torch.dtype | None = None,
    accumulate: torch.dtype | None = None,
    tiles: int = 1,
    between: torch.dtype | None = None,
) -> list[Bounded]:
    """Return truth and budget of a function's output and gradients.

    Args:
        function: the formula, of floating-point inputs alone; other arguments
            such as masks are bound to it before.
        inputs: its arguments, in the precision that they have when computed.
        upstream: the gradient on the output.
        dtype: the precision of the results; that of the first input unless
            given.
        accumulate: the precision in which sums are taken. Unless given it is
            `dtype`, which also covers every implementation that adds in a
            higher one. Only bfloat16 is added in float32: its 8 bits leave
            nothing of a sum, and every processor with bfloat16 products
            (AVX-512 BF16, AMX, tensor cores) adds them in float32.
        tiles: the number of tiles into which an online softmax cuts the keys.
        between: the precision of scores, weights and other numbers between the
            matrix products. Unless given it is `dtype`, which also covers
            every implementation that keeps them in a higher one.

    Returns:
        The output, then the gradient on each input. In float64 the truth is
        itself rounded, so twice the bound is allowed.

    Raises:
        NotImplementedError: if the formula uses an operation without a rule.
    """
    dtype = dtype or inputs[0].dtype
    twice = 2.0 if dtype == torch.float64 else 1.0
    leaves = [x.detach().double().requires_grad_() for x in inputs]
    bounds = ErrorBounds(dtype, accumulate, tiles, between)
    with torch.enable_grad(), bounds as errors:
        output = function(*leaves)
        made = torch.autograd.grad(
            output, leaves, upstream.detach().double(), materialize_grads=True
        )
    found = []
    for x in (output.detach(), *(x.detach() for x in made)):
        error = errors.get_error(x).to(x.device)
        stored = errors.bound_narrowing(x.abs() + error)
        found.append(Bounded(x, twice * (error + stored)))
    return found


def share_of_budget(ours: Tensor, bounded: Bounded) -> float:
    """Return the largest error as a share of what is allowed; 1 is the limit.

    NaN and infinity where the truth is finite, and any error where none is
    allowed, use an infinite share.

    Args:
        ours: the result to be judged.
        bounded: its truth and budget.

    Raises:
        ValueError: if the shapes differ.
    """
    truth, allowed = bounded.truth.detach(), bounded.allowed
    if ours.shape != truth.shape:
        raise ValueError(
            f"the result has shape {tuple(ours.shape)}, but its budget is for "
            f"{tuple(truth.shape)}"
        )
    if not truth.numel():
        return 0.0
    wrong = (ours.detach().double() - truth).abs()
    share = torch.where(wrong == 0, 0.0, wrong / allowed)
    return float(share.masked_fill(share.isnan(), math.inf).max())
