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
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

STORED, FACTOR = 2, 3  # roundings charged to a result, and to a factor
EXPONENTIAL = 4  # 2 units in the last place, as vectorized libraries promise


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

    Returns:
        The output, then the gradient on each input. In float64 the truth is
        itself rounded, so twice the bound is allowed.

    Raises:
        NotImplementedError: if the formula uses an operation without a rule.
    """
    dtype = dtype or inputs[0].dtype
    twice = 2.0 if dtype == torch.float64 else 1.0
    leaves = [x.detach().double().requires_grad_() for x in inputs]
    with torch.enable_grad(), RunningErrors(dtype, accumulate, tiles) as errors:
        output = function(*leaves)
        made = torch.autograd.grad(
            output, leaves, upstream.detach().double(), materialize_grads=True
        )
    return [
        Bounded(x.detach(), twice * errors.of(x.detach()))
        for x in (output, *made)
    ]


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


class RunningErrors(TorchDispatchMode):
    """While it is active, every operation carries a bound on its error.

    Args:
        dtype: the precision in which results are stored.
        accumulate: the precision in which sums are taken.
        tiles: the number of tiles of an online softmax.
    """

    def __init__(self, dtype, accumulate=None, tiles=1):
        super().__init__()
        stored = torch.finfo(dtype)
        single = torch.promote_types(dtype, torch.float32)
        adds = single if dtype == torch.bfloat16 else dtype
        summed = torch.finfo(accumulate or adds)
        self.u, self.v = stored.eps / 2, summed.eps / 2
        # Below it lie subnormal numbers, which float16 keeps and other
        # precisions may set to zero.
        half = dtype == torch.float16
        self.tiny = stored.tiny * (stored.eps if half else 1.0)
        self.tiles = tiles
        self.errors: dict[tuple, Tensor] = {}
        self.terms: dict[tuple, Tensor] = {}
        self.alive: list[Tensor] = []  # so that no memory is used twice

    def carry(self, x: Tensor, error: Tensor) -> None:
        """Say how far an input may be off; inputs are exact unless told so."""
        self.errors[key(x)] = error
        self.alive.append(x)

    def of(self, x: Tensor | float | int) -> Tensor:
        """Return the bound on a tensor's error; inputs have none."""
        if not isinstance(x, Tensor):
            return torch.zeros((), dtype=torch.float64)
        found = self.errors.get(key(x))
        return torch.zeros_like(x) if found is None else found

    def most(self, x: Tensor | float | int) -> Tensor:
        """Return how large the computed numbers can be."""
        return (x.abs() if isinstance(x, Tensor) else abs(x)) + self.of(x)

    def gamma(self, summed: int, stored: int = STORED) -> float:
        """Return the relative error of some roundings in sums and in stores."""
        roundings = summed * math.log1p(-self.v) + stored * math.log1p(-self.u)
        return math.expm1(-roundings)

    def rounded(self, size: Tensor, summed: int, stored: int = STORED):
        """Return the error that roundings make in terms of this size."""
        lost = (summed + stored) * self.tiny * (size > 0)
        return self.gamma(summed, stored) * size + lost

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        given = [x for x in tree_leaves(args) if isinstance(x, Tensor)]
        results = [x for x in tree_leaves(made) if isinstance(x, Tensor)]
        if not given or not any(x.is_floating_point() for x in results):
            return made
        self.alive += results
        name = func._schema.name.removeprefix("aten::").rstrip("_")
        if name in MOVES:
            self._move(func, made, args, kwargs)
        elif name in RULES:
            self.errors[key(made)] = RULES[name](self, made, *args, **kwargs)
        elif name not in CONSTANTS:
            raise NotImplementedError(f"no rule for the error of {func}")
        return made

    def _move(self, func, made, args, kwargs):
        """Errors and terms move as the numbers do."""
        for held, of in (self.errors, self.of), (self.terms, self._terms):
            moved = func(*tree_map(moving(of), args), **kwargs)
            pairs = zip(tree_leaves(made), tree_leaves(moved), strict=True)
            for x, error in pairs:
                held[key(x)] = error
        self.alive += tree_leaves(moved)

    def _terms(self, x: Tensor) -> Tensor:
        """Return the size of a product's terms; else that of the number."""
        found = self.terms.get(key(x))
        return x.abs() if found is None else found


def key(x: Tensor) -> tuple:
    """Return what tells two tensors apart, however PyTorch wraps them."""
    return x.data_ptr(), x.dtype, tuple(x.shape), x.stride()


def moving(of: Callable) -> Callable:
    """Return what replaces numbers by their errors and leaves indices."""

    def replace(x):
        floats = isinstance(x, Tensor) and x.is_floating_point()
        return of(x) if floats else x

    return replace


def product(run, made, a, b):
    """Bound matrix products; keep the size of their terms."""
    run.terms[key(made)] = a.abs() @ b.abs()
    return product_and_sum(run, made, torch.zeros_like(made[..., :1, :]), a, b)


def product_and_sum(run, made, start, a, b):
    """Bound a linear layer: a matrix product and a bias."""
    sizes = run.most(a) @ run.most(b) + run.most(start)
    carried = a.abs() @ run.of(b) + run.of(a) @ run.most(b) + run.of(start)
    return carried + run.rounded(sizes, a.shape[-1] + 1)


def addition(run, made, a, b, alpha=1):
    """Bound sums and differences by the size of both terms."""
    sizes = run.most(a) + abs(alpha) * run.most(b)
    carried = run.of(a) + abs(alpha) * run.of(b)
    return (carried + run.rounded(sizes, 0)).expand_as(made)


def multiplication(run, made, a, b):
    """Bound products of numbers, or with one factor."""
    a, b = (b, a) if isinstance(b, Tensor) and b.dim() == 0 else (a, b)
    size = b.abs() if isinstance(b, Tensor) else abs(b)
    carried = size * run.of(a) + run.most(a) * run.of(b)
    factor = not isinstance(b, Tensor) or b.dim() == 0
    charged = FACTOR if factor else STORED
    return carried + run.rounded(run.most(a) * run.most(b), 0, charged)


def division(run, made, a, b):
    """Bound quotients; without a bound where the divisor may be zero."""
    if not isinstance(b, Tensor):
        return multiplication(run, made, a, 1 / b)
    least = (b.abs() - run.of(b)).clamp(min=0.0)
    carried = (run.of(a) + made.abs() * run.of(b)) / least
    return carried + run.rounded(run.most(a) / least, 0)


def power(run, made, x, exponent):
    """Bound whole powers."""
    if exponent == 1:
        return run.of(x)
    largest = run.most(x) ** exponent
    return largest - x.abs() ** exponent + run.rounded(largest, 0)


def inverse_root(run, made, x):
    """Bound 1 / √x."""
    largest = (x - run.of(x)).clamp(min=0.0).rsqrt()
    return largest - made + run.rounded(largest, 0)


def exponential(run, made, x):
    """Bound exp(x): an absolute error becomes a relative one."""
    relative = run.of(x) + run.gamma(2, 0) * x.abs()
    relative = relative + run.gamma(EXPONENTIAL)
    return made * relative.expm1() + run.tiny


def hyperbolic_tangent(run, made, x):
    """Bound tanh, whose slope is at most 1, computed from an exponential."""
    return run.of(x) + run.gamma(EXPONENTIAL)


def hyperbolic_tangent_gradient(run, made, upstream, output):
    """Bound upstream · (1 - output²)."""
    error = run.of(output)
    carried = run.of(upstream) * (1 - output.square())
    carried += run.most(upstream) * error * (2 * output.abs() + error)
    sizes = run.most(upstream) * (1 + run.most(output).square())
    return carried + run.rounded(sizes, 1)


def total(run, made, x, dim=None, keepdim=False, dtype=None, parts=1):
    """Bound sums over axes."""
    dim = list(range(x.dim())) if dim is None or not len(dim) else dim
    count = math.prod(x.shape[d] for d in dim)
    sizes = run.most(x).sum(dim, keepdim)
    carried = run.of(x).sum(dim, keepdim)
    # Sums over broadcast axes and over uses are stored as they grow.
    return (carried + run.rounded(sizes, 0, count + STORED)) / parts


def average(run, made, x, dim=None, keepdim=False, dtype=None):
    """Bound means over axes."""
    return total(run, made, x, dim, keepdim, parts=x.numel() // made.numel())


def rectified(run, made, x):
    """Bound max(x, 0)."""
    return run.of(x).where(x > -run.of(x), 0.0)


def rectified_gradient(run, made, upstream, x, threshold):
    """Bound ReLU's gradient: of an x near 0 it is not known which it is."""
    known = x.abs() > run.of(x)
    passed = run.of(upstream).where(x > 0, 0.0)
    return passed.where(known | (run.of(x) == 0), run.most(upstream))


def softmax(run, made, x, dim, half=False):
    """Bound weights: their relative error is the scores' absolute one."""
    seen = x > -torch.inf
    error = run.of(x)
    away = (x.amax(dim, keepdim=True) - x).where(seen, 0.0)
    away = away + 2 * error.amax(dim, keepdim=True)
    lse = x.logsumexp(dim, keepdim=True).abs()
    rho = error + run.gamma(2, 0) * (away + lse) + run.gamma(EXPONENTIAL, 1)
    rho = rho.where(seen, 0.0).clamp(max=100.0)
    sums = run.gamma(x.shape[dim] + 4 * run.tiles + 1, 1)
    tau = rho + (made * rho.exp()).sum(dim, keepdim=True).log() + sums
    # No weight passes 1, unless its score is computed again for it.
    upper = torch.minimum(made * tau.exp(), (2 * rho + sums).exp())
    lower = made * (-tau).exp()
    return torch.maximum(upper - made, made - lower) + run.tiny * seen


def softmax_gradient(run, made, upstream, weights, dim, dtype=None):
    """Bound weights ∘ (upstream - Σ weights · upstream)."""
    terms = run._terms(upstream) + run.of(upstream)
    error, most = run.of(weights), run.most(weights)
    size = (most * terms).sum(dim, keepdim=True)
    mean = (weights * upstream).sum(dim, keepdim=True)
    carried = (error * terms + most * run.of(upstream)).sum(dim, keepdim=True)
    carried += run.rounded(size, weights.shape[dim], STORED + 1)
    apart = run.of(upstream) + carried + run.rounded(terms + size, 0)
    away = (upstream - mean).abs()
    carried = error * away + most * apart
    return carried + run.rounded(most * (away + apart), 0, FACTOR)


def masked(run, made, x, mask, value):
    """What is filled in is exact."""
    run.terms[key(made)] = run._terms(x).masked_fill(mask, 0.0)
    return run.of(x).masked_fill(mask, 0.0)


def chosen(run, made, where, a, b):
    """Take each number's error from where the number is taken."""
    return torch.where(where, run.of(a), run.of(b))


RULES: dict[str, Callable] = {
    "mm": product, "bmm": product, "addmm": product_and_sum,
    "add": addition, "sub": addition, "mul": multiplication,
    "div": division, "pow": power, "rsqrt": inverse_root,
    "exp": exponential, "tanh": hyperbolic_tangent,
    "tanh_backward": hyperbolic_tangent_gradient,
    "sum": total, "mean": average,
    "relu": rectified, "threshold_backward": rectified_gradient,
    "_softmax": softmax, "_softmax_backward_data": softmax_gradient,
    "masked_fill": masked, "where": chosen,
    "neg": lambda run, made, x: run.of(x),
}  # fmt: skip
MOVES = {
    "_to_copy", "_unsafe_view", "alias", "cat", "clone", "constant_pad_nd",
    "detach", "expand", "flip", "index", "permute", "repeat", "select",
    "select_backward", "slice", "slice_backward", "split", "squeeze", "stack",
    "t", "transpose", "unbind", "unsqueeze", "view",
}  # fmt: skip
CONSTANTS = {"empty_like", "full_like", "new_zeros", "ones_like", "zeros_like"}
