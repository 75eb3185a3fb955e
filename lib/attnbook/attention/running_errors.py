"""Running error analysis: every operation of PyTorch carries a bound.

`RunningErrors` watches a computation in double precision. For each operation it
calls a rule, which bounds the error of the result by the errors and sizes of
what was combined. `attnbook.attention.error_budget` says which roundings are
charged.

Source: Higham (2002), Accuracy and Stability of Numerical Algorithms, second
    edition, sections 3.3 (running error analysis) and 3.1 (γₙ), without its
    truncation to first order.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

Key = tuple[int, torch.dtype, tuple[int, ...], tuple[int, ...]]
STORED, FACTOR = 2, 3  # roundings charged to a result, and to a factor
EXPONENTIAL = 4  # 2 units in the last place, as vectorized libraries promise


class RunningErrors(TorchDispatchMode):
    """While it is active, every operation carries a bound on its error.

    Args:
        dtype: the precision in which results are stored.
        accumulate: the precision in which sums are taken.
        tiles: the number of tiles of an online softmax.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        accumulate: torch.dtype | None = None,
        tiles: int = 1,
    ) -> None:
        # PyTorch does not annotate its constructor.
        super().__init__()  # type: ignore[no-untyped-call]
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
        self.errors: dict[Key, Tensor] = {}
        self.terms: dict[Key, Tensor] = {}
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

    def rounded(
        self, size: Tensor, summed: int, stored: int = STORED
    ) -> Tensor:
        """Return the error that roundings make in terms of this size."""
        lost = (summed + stored) * self.tiny * (size > 0)
        return self.gamma(summed, stored) * size + lost

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
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

    def _move(
        self,
        func: Callable[..., Any],
        made: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
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


def key(x: Tensor) -> Key:
    """Return what tells two tensors apart, however PyTorch wraps them."""
    return x.data_ptr(), x.dtype, tuple(x.shape), x.stride()


def moving(of: Callable[[Tensor], Tensor]) -> Callable[[Any], Any]:
    """Return what replaces numbers by their errors and leaves indices."""

    def replace(x: Any) -> Any:
        floats = isinstance(x, Tensor) and x.is_floating_point()
        return of(x) if floats else x

    return replace


def product(run: RunningErrors, made: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Bound matrix products; keep the size of their terms."""
    run.terms[key(made)] = a.abs() @ b.abs()
    return product_and_sum(run, made, torch.zeros_like(made[..., :1, :]), a, b)


def product_and_sum(
    run: RunningErrors, made: Tensor, start: Tensor, a: Tensor, b: Tensor
) -> Tensor:
    """Bound a linear layer: a matrix product and a bias."""
    sizes = run.most(a) @ run.most(b) + run.most(start)
    carried = a.abs() @ run.of(b) + run.of(a) @ run.most(b) + run.of(start)
    return carried + run.rounded(sizes, a.shape[-1] + 1)


def addition(
    run: RunningErrors,
    made: Tensor,
    a: Tensor,
    b: Tensor | float | int,
    alpha: float | int = 1,
) -> Tensor:
    """Bound sums and differences by the size of both terms."""
    sizes = run.most(a) + abs(alpha) * run.most(b)
    carried = run.of(a) + abs(alpha) * run.of(b)
    return (carried + run.rounded(sizes, 0)).expand_as(made)


def multiplication(
    run: RunningErrors, made: Tensor, a: Tensor, b: Tensor | float | int
) -> Tensor:
    """Bound products of numbers, or with one factor."""
    a, b = (b, a) if isinstance(b, Tensor) and b.dim() == 0 else (a, b)
    size = b.abs() if isinstance(b, Tensor) else abs(b)
    carried = size * run.of(a) + run.most(a) * run.of(b)
    factor = not isinstance(b, Tensor) or b.dim() == 0
    charged = FACTOR if factor else STORED
    return carried + run.rounded(run.most(a) * run.most(b), 0, charged)


def division(
    run: RunningErrors, made: Tensor, a: Tensor, b: Tensor | float | int
) -> Tensor:
    """Bound quotients; without a bound where the divisor may be zero."""
    if not isinstance(b, Tensor):
        return multiplication(run, made, a, 1 / b)
    least = (b.abs() - run.of(b)).clamp(min=0.0)
    carried = (run.of(a) + made.abs() * run.of(b)) / least
    return carried + run.rounded(run.most(a) / least, 0)


def power(
    run: RunningErrors, made: Tensor, x: Tensor, exponent: float | int
) -> Tensor:
    """Bound whole powers."""
    if exponent == 1:
        return run.of(x)
    largest = run.most(x) ** exponent
    return largest - x.abs() ** exponent + run.rounded(largest, 0)


def inverse_root(run: RunningErrors, made: Tensor, x: Tensor) -> Tensor:
    """Bound 1 / √x."""
    largest = (x - run.of(x)).clamp(min=0.0).rsqrt()
    return largest - made + run.rounded(largest, 0)


def exponential(run: RunningErrors, made: Tensor, x: Tensor) -> Tensor:
    """Bound exp(x): an absolute error becomes a relative one."""
    relative = run.of(x) + run.gamma(2, 0) * x.abs()
    relative = relative + run.gamma(EXPONENTIAL)
    return made * relative.expm1() + run.tiny


def hyperbolic_tangent(run: RunningErrors, made: Tensor, x: Tensor) -> Tensor:
    """Bound tanh, whose slope is at most 1, computed from an exponential."""
    return run.of(x) + run.gamma(EXPONENTIAL)


def hyperbolic_tangent_gradient(
    run: RunningErrors, made: Tensor, upstream: Tensor, output: Tensor
) -> Tensor:
    """Bound upstream · (1 - output²)."""
    error = run.of(output)
    carried = run.of(upstream) * (1 - output.square())
    carried += run.most(upstream) * error * (2 * output.abs() + error)
    sizes = run.most(upstream) * (1 + run.most(output).square())
    return carried + run.rounded(sizes, 1)


def total(
    run: RunningErrors,
    made: Tensor,
    x: Tensor,
    dim: list[int] | None = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
    parts: int = 1,
) -> Tensor:
    """Bound sums over axes."""
    dim = list(range(x.dim())) if dim is None or not len(dim) else dim
    count = math.prod(x.shape[d] for d in dim)
    sizes = run.most(x).sum(dim, keepdim)
    carried = run.of(x).sum(dim, keepdim)
    # Sums over broadcast axes and over uses are stored as they grow.
    return (carried + run.rounded(sizes, 0, count + STORED)) / parts


def average(
    run: RunningErrors,
    made: Tensor,
    x: Tensor,
    dim: list[int] | None = None,
    keepdim: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Bound means over axes."""
    return total(run, made, x, dim, keepdim, parts=x.numel() // made.numel())


def rectified(run: RunningErrors, made: Tensor, x: Tensor) -> Tensor:
    """Bound max(x, 0)."""
    return run.of(x).where(x > -run.of(x), 0.0)


def rectified_gradient(
    run: RunningErrors,
    made: Tensor,
    upstream: Tensor,
    x: Tensor,
    threshold: float | int,
) -> Tensor:
    """Bound ReLU's gradient: of an x near 0 it is not known which it is."""
    known = x.abs() > run.of(x)
    passed = run.of(upstream).where(x > 0, 0.0)
    return passed.where(known | (run.of(x) == 0), run.most(upstream))


def softmax(
    run: RunningErrors, made: Tensor, x: Tensor, dim: int, half: bool = False
) -> Tensor:
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


def softmax_gradient(
    run: RunningErrors,
    made: Tensor,
    upstream: Tensor,
    weights: Tensor,
    dim: int,
    dtype: torch.dtype | None = None,
) -> Tensor:
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


def masked(
    run: RunningErrors,
    made: Tensor,
    x: Tensor,
    mask: Tensor,
    value: Tensor | float | int,
) -> Tensor:
    """What is filled in is exact."""
    run.terms[key(made)] = run._terms(x).masked_fill(mask, 0.0)
    return run.of(x).masked_fill(mask, 0.0)


def chosen(
    run: RunningErrors, made: Tensor, where: Tensor, a: Tensor, b: Tensor
) -> Tensor:
    """Take each number's error from where the number is taken."""
    return torch.where(where, run.of(a), run.of(b))


RULES: dict[str, Callable[..., Tensor]] = {
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
