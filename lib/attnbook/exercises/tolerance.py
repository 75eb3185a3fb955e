"""How far the numbers of a right answer may lie from ours, on any machine.

Two right answers add in different orders, and so do two processors. How far
that carries their results apart is found by **Monte Carlo arithmetic**: the
book's own answer is computed `DRAWS` times more, and every rounding in it is
drawn at random. Where terms cancel, the results scatter with the size of the
*terms*, however small the result is.

What is drawn, with eps = 2u the spacing of numbers near 1, u the unit roundoff
and every ξ a standard normal number of its own:

    a function of single numbers   its result x becomes x (1 + eps ξ): that
        (a + b, a b, exp, tanh)    models one rounding
    a sum of n terms or products   before it, every operand x becomes
        (a mean, A @ B)            x (1 + n eps ξ); then its result is rounded
    what only moves numbers        stays exact, but for copies: inputs, which
                                   are copied for each call, are rounded once

Why n: in any order of summation, a term tᵢ passes through the roundings δₖ of
its product and of the partial sums that contain it. The error is Σₖ δₖ sₖ, to
first order in u, where the partial sum sₖ has nₖ terms. By the inequality of
Cauchy and Schwarz sₖ² is at most nₖ times the sum of its squared terms, and
the nₖ of all partial sums with one term in common add up to at most
1 + 2 + … + n ≤ n². For independent roundings, uniform between -u and u, the
variance of the sum's error is therefore at most n² (u² / 3) Σ tᵢ², in *every*
order. Here it is at least n² (2u)² Σ tᵢ²: the standard deviation is 2 √3 = 3.5
times that of any order, or more.

The allowed distance is

    FACTOR · (root mean square of the draws' distances from the undrawn result)
    + STORED · u · (largest finite number of the tensor).

The second term is for an answer that stores some intermediate results more, or
scales at another place. What is claimed is a standard deviation and no worst
case: a worst-case bound, γₙ Σ|tᵢ|, is up to √n times larger and grows at every
step, because it ignores that rounding errors cancel (`error_budget` computes
one). The difference of two answers that err as above has at most √2 / 3.5 of
the draws' standard deviation, so FACTOR = 8 stands for 19 standard deviations.
Because eight draws only estimate it, the ratio follows Student's t distribution
with eight degrees of freedom: it passes 19 once in 2 · 10⁷ numbers, without the
second term.

A softmax can be computed in two usual ways: with powers that are divided by
their sum, or as exp(x - logsumexp). The logsumexp is then rounded, and its
error has the size of x, which is drawn as well.

Departure: a number in a higher precision than the result's is rounded as in
single precision, because a learner may compute in that of the inputs.

Source: Parker (1997), Monte Carlo Arithmetic, UCLA CSD-970002, chapter 3;
    Denis, de Oliveira Castro and Petit (2016), Verificarlo,
    https://arxiv.org/abs/1509.01347; random models of rounding: Higham and Mary
    (2019), https://doi.org/10.1137/18M1226312
"""

import math
from collections.abc import Sequence
from functools import cache, partial

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from attnbook.attention.tensor_trees import collect_tensors, map_tensors

DRAWS = 8
FACTOR = 8.0
STORED = 16  # roundings: eight in each of two answers
# What a few draws allow, times this, is more than ten times what all of them
# allow, in every case of every exercise; a test holds it.
FEW, CERTAIN = 2, 1000.0

# Operations whose results are entries of an operand, or constants.
EXACT = {
    "_to_copy", "_unsafe_view", "abs", "amax", "amin", "cat", "ceil", "clamp",
    "clamp_min", "constant_pad_nd", "copy", "empty_like", "fill",
    "flip", "floor", "full_like", "gather", "index", "index_select",
    "masked_fill", "masked_select", "max", "maximum", "min", "minimum",
    "nan_to_num", "neg", "new_empty", "new_full", "new_zeros", "ones_like",
    "relu", "repeat", "roll", "round", "select_backward", "set", "sign",
    "slice_backward", "sort", "stack", "threshold_backward", "topk", "tril",
    "triu", "where", "zero", "zeros_like",
}  # fmt: skip
PRODUCTS = {
    f"aten::{name}" for name in ("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot")
}


def compute_tolerance(
    right: Tensor,
    draws: Sequence[Tensor] = (),
    precision: torch.dtype | None = None,
) -> Tensor:
    """Return how far from a right result another one may lie.

    Args:
        right: the result; only floating-point numbers may differ at all.
        draws: what an answer gives without random roundings, and then with
            them; without draws, only what the storing of results costs is
            allowed.
        precision: in which intermediate results are stored, if not in that of
            the result.
    """
    if not right.is_floating_point():
        return torch.zeros(right.shape, dtype=torch.float64)
    truth = right.double()
    finite = truth.abs().masked_fill(~truth.isfinite(), 0.0)
    largest = finite.max() if finite.numel() else 0.0
    stored = STORED * torch.finfo(precision or right.dtype).eps / 2 * largest
    allowed = torch.full_like(truth, float(stored))
    if len(draws) > 1:
        undrawn, *drawn = (x.double() for x in draws)
        away = torch.stack(drawn) - undrawn
        away = away.masked_fill(~away.isfinite(), 0.0)
        allowed += FACTOR * away.square().mean(0).sqrt()
    return allowed


def compute_tolerance_share(
    ours: Tensor,
    right: Tensor,
    draws: Sequence[Tensor] = (),
    precision: torch.dtype | None = None,
) -> Tensor:
    """Return each number's distance as a share of what is allowed.

    From 0, equal, over 1, the limit, to infinity: where infinity and NaN are
    not both, or where nothing is allowed.
    """
    if right.is_complex():  # no exercise asks for one
        return torch.where(ours == right, 0.0, math.inf)
    allowed = compute_tolerance(right, draws, precision)
    ours, right = ours.double(), right.double()
    share = (ours - right).abs() / allowed
    share = share.masked_fill(~(ours.isfinite() & right.isfinite()), math.inf)
    same = (ours == right) | (ours.isnan() & right.isnan())
    return share.masked_fill(same, 0.0)


def differs_certainly(
    ours: Tensor,
    right: Tensor,
    drawn: Sequence[Tensor],
    precision: torch.dtype | None = None,
) -> Tensor:
    """Return True where numbers differ by ten tolerances at least.

    A few draws are enough to tell. The tolerance meant is the largest one of
    the tensor.

    Args:
        ours: the one.
        right: the other, which the tolerance is for.
        drawn: what an answer gives without random roundings, and then a few
            times with them; nothing is certain without them.
        precision: as of `compute_tolerance`.
    """
    if len(drawn) <= FEW or not right.numel() or right.is_complex():
        return torch.zeros(right.shape, dtype=torch.bool)
    allowed = compute_tolerance(right, drawn, precision).max()
    return (ours.double() - right.double()).abs() > CERTAIN * allowed


class RandomRounding(TorchDispatchMode):
    """While it is active, every operation's roundings are drawn at random.

    Args:
        dtype: the precision of the results.
        seed: of the private generator.
    """

    def __init__(self, dtype: torch.dtype, seed: int):
        super().__init__()
        self.rng = torch.Generator().manual_seed(seed)
        single = torch.finfo(torch.float32).eps
        self.least = min(torch.finfo(dtype).eps, single)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Save a second: only this book's answers, never compiled, run here.

        Else PyTorch would import its compiler at the first operation.
        """
        return False

    def round_randomly(self, x: Tensor, count: int = 1) -> Tensor:
        """Return a tensor after as many random roundings, as a new one."""
        if not x.is_floating_point():
            return x
        wide = torch.promote_types(x.dtype, torch.float32)
        noise = torch.randn(x.shape, generator=self.rng, dtype=wide)
        eps = max(torch.finfo(x.dtype).eps, self.least)
        return (x * noise.mul_(count * eps).add_(1.0)).to(x.dtype)

    def round_logsumexp(self, name: str, made: Tensor, x: Tensor, dim: int) -> Tensor:
        """Return a softmax that is computed from a rounded logsumexp.

        It is one of the two usual ways: exp(x - logsumexp). Where one weight
        is 1, the logsumexp is its x, and nothing is rounded.
        """
        size, top = x.amax(dim, keepdim=True), made.amax(dim, keepdim=True)
        exact = top == (0 if name == "_log_softmax" else 1)
        size = size.masked_fill(exact | ~size.isfinite(), 0.0)
        error = self.round_randomly(size) - size
        return made + error if name == "_log_softmax" else made * (1 + error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name, exact, changes, pointwise = describe_operation(func)
        if exact:
            return func(*args, **kwargs)
        if not pointwise:
            if not any(x.is_floating_point() for x in collect_tensors(args)):
                return func(*args, **kwargs)
            summed = partial(self.round_randomly, count=count_terms(func, args))
            drawn = map_tensors(summed, args)
            args = (args[0], *drawn[1:]) if changes else drawn
        made = func(*args, **kwargs)
        if name in ("_softmax", "_log_softmax"):
            made = self.round_logsumexp(name, made, *args[:2])
        if changes:
            return made.copy_(self.round_randomly(made))
        return map_tensors(self.round_randomly, made)


@cache
def describe_operation(func: OpOverload) -> tuple[str, bool, bool, bool]:
    """Return an operation's name, and whether it is exact, in place, pointwise.

    An operation in place changes its first argument.
    """
    name = func._schema.name.removeprefix("aten::").rstrip("_")
    exact = func.is_view or name in EXACT
    pointwise = torch.Tag.pointwise in func.tags
    return name, exact, func._schema.is_mutable, pointwise


@cache
def find_dim(func: OpOverload) -> int:
    """Return the place of an operation's `dim`, or one after all arguments."""
    names = [x.name for x in func._schema.arguments]
    return names.index("dim") if "dim" in names else len(names)


def count_terms(func: OpOverload, args: Sequence) -> int:
    """Return how many terms a sum of an operation has, at most."""
    given = [x for x in collect_tensors(args) if x.is_floating_point()]
    if func._schema.name in PRODUCTS:
        return given[-2].shape[-1] + len(given) - 2  # the bias is a term, too
    place, x = find_dim(func), given[0]
    dims = args[place] if place < len(args) else None
    if dims is None or dims == []:
        return max(y.numel() for y in given)
    dims = dims if isinstance(dims, list | tuple) else [dims]
    return math.prod(x.shape[d] for d in dims) if x.dim() else 1
