"""Running error analysis: every operation of PyTorch carries a bound.

`ErrorBounds` watches a computation in double precision. For each operation it
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

from attnbook.attention.tensor_trees import collect_tensors, map_tensors

Key = tuple[int, torch.dtype, tuple[int, ...], tuple[int, ...]]
STORED, FACTOR = 2, 3  # roundings charged to a result, and to a factor
EXPONENTIAL = 4  # 2 units in the last place, as vectorized libraries promise


class ErrorBounds(TorchDispatchMode):
    """While it is active, every operation carries a bound on its error.

    Args:
        dtype: the precision in which results are stored.
        accumulate: the precision in which sums are taken.
        tiles: the number of tiles of an online softmax.
        between: the precision of what is stored between matrix products;
            `dtype` unless given.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        accumulate: torch.dtype | None = None,
        tiles: int = 1,
        between: torch.dtype | None = None,
    ) -> None:
        # PyTorch does not annotate its constructor.
        super().__init__()  # type: ignore[no-untyped-call]
        between = between or dtype
        single = torch.promote_types(dtype, torch.float32)
        adds = single if dtype == torch.bfloat16 else dtype
        summed = torch.finfo(accumulate or adds)
        self.u, self.v = torch.finfo(between).eps / 2, summed.eps / 2
        self.tiny = get_smallest(between)
        # What is rounded once from `between` to `dtype`, if they differ.
        narrows = between != dtype
        self.narrow = torch.finfo(dtype).eps / 2 if narrows else 0.0
        self.narrow_tiny = get_smallest(dtype) if narrows else 0.0
        self.tiles = tiles
        self.errors: dict[Key, Tensor] = {}
        self.terms: dict[Key, Tensor] = {}
        self.unrounded: dict[Key, Tensor] = {}  # errors of weights in `between`
        self.alive: list[Tensor] = []  # so that no memory is used twice

    def set_error(self, x: Tensor, error: Tensor) -> None:
        """Say how far an input may be off; inputs are exact unless told so."""
        self.errors[make_key(x)] = error
        self.alive.append(x)

    def get_error(self, x: Tensor | float | int) -> Tensor:
        """Return the bound on a tensor's error; inputs have none."""
        if not isinstance(x, Tensor):
            return torch.zeros((), dtype=torch.float64)
        found = self.errors.get(make_key(x))
        return torch.zeros_like(x) if found is None else found

    def bound_size(self, x: Tensor | float | int) -> Tensor:
        """Return how large the computed numbers can be."""
        return (x.abs() if isinstance(x, Tensor) else abs(x)) + self.get_error(x)

    def compute_gamma(self, summed: int, stored: int = STORED) -> float:
        """Return the relative error of some roundings in sums and in stores."""
        roundings = summed * math.log1p(-self.v) + stored * math.log1p(-self.u)
        return math.expm1(-roundings)

    def bound_rounding(self, size: Tensor, summed: int, stored: int = STORED) -> Tensor:
        """Return the error that roundings make in terms of this size."""
        lost = (summed + stored) * self.tiny * (size > 0)
        return self.compute_gamma(summed, stored) * size + lost

    def bound_narrowing(self, size: Tensor) -> Tensor:
        """Return the error of one rounding from `between` to `dtype`."""
        return self.narrow * size + self.narrow_tiny * (size > 0)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        results = collect_tensors(made)
        has_floats = any(x.is_floating_point() for x in results)
        if not has_floats or not collect_tensors(args):
            return made
        self.alive += results
        name = func._schema.name.removeprefix("aten::").rstrip("_")
        if name in MOVES:
            self._move(func, made, args, kwargs)
        elif name in RULES:
            self.errors[make_key(made)] = RULES[name](self, made, *args, **kwargs)
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
        for held, of in (
            (self.errors, self.get_error),
            (self.terms, self._get_terms),
        ):
            replaced = map_tensors(replace_numbers(of), args)
            moved = collect_tensors(func(*replaced, **kwargs))
            for x, error in zip(collect_tensors(made), moved, strict=True):
                held[make_key(x)] = error
        self.alive += moved

    def _get_terms(self, x: Tensor) -> Tensor:
        """Return the size of a product's terms; else that of the number."""
        found = self.terms.get(make_key(x))
        return x.abs() if found is None else found


def get_smallest(dtype: torch.dtype) -> float:
    """Return the smallest number that a precision keeps for certain.

    Below normal numbers lie subnormal ones, which float16 keeps and other
    precisions may set to zero.
    """
    found = torch.finfo(dtype)
    return found.tiny * (found.eps if dtype == torch.float16 else 1.0)


def make_key(x: Tensor) -> Key:
    """Return what tells two tensors apart, however PyTorch wraps them."""
    return x.data_ptr(), x.dtype, tuple(x.shape), x.stride()


def replace_numbers(of: Callable[[Tensor], Tensor]) -> Callable[[Any], Any]:
    """Return what replaces numbers by their errors and leaves indices."""
    return lambda x: of(x) if x.is_floating_point() else x


def bound_product(run: ErrorBounds, made: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Bound matrix products; keep the size of their terms."""
    run.terms[make_key(made)] = a.abs() @ b.abs()
    return bound_product_and_sum(run, made, torch.zeros_like(made[..., :1, :]), a, b)


def bound_product_and_sum(
    run: ErrorBounds, made: Tensor, start: Tensor, a: Tensor, b: Tensor
) -> Tensor:
    """Bound a linear layer: a matrix product and a bias."""
    sizes = run.bound_size(a) @ run.bound_size(b) + run.bound_size(start)
    carried = (
        a.abs() @ run.get_error(b)
        + run.get_error(a) @ run.bound_size(b)
        + run.get_error(start)
    )
    return carried + run.bound_rounding(sizes, a.shape[-1] + 1)


def bound_addition(
    run: ErrorBounds,
    made: Tensor,
    a: Tensor,
    b: Tensor | float | int,
    alpha: float | int = 1,
) -> Tensor:
    """Bound sums and differences by the size of both terms."""
    sizes = run.bound_size(a) + abs(alpha) * run.bound_size(b)
    carried = run.get_error(a) + abs(alpha) * run.get_error(b)
    return (carried + run.bound_rounding(sizes, 0)).expand_as(made)


def bound_multiplication(
    run: ErrorBounds, made: Tensor, a: Tensor, b: Tensor | float | int
) -> Tensor:
    """Bound products of numbers, or with one factor."""
    a, b = (b, a) if isinstance(b, Tensor) and b.dim() == 0 else (a, b)
    size = b.abs() if isinstance(b, Tensor) else abs(b)
    carried = size * run.get_error(a) + run.bound_size(a) * run.get_error(b)
    factor = not isinstance(b, Tensor) or b.dim() == 0
    charged = FACTOR if factor else STORED
    return carried + run.bound_rounding(
        run.bound_size(a) * run.bound_size(b), 0, charged
    )


def bound_division(
    run: ErrorBounds, made: Tensor, a: Tensor, b: Tensor | float | int
) -> Tensor:
    """Bound quotients; without a bound where the divisor may be zero."""
    if not isinstance(b, Tensor):
        return bound_multiplication(run, made, a, 1 / b)
    least = (b.abs() - run.get_error(b)).clamp(min=0.0)
    carried = (run.get_error(a) + made.abs() * run.get_error(b)) / least
    return carried + run.bound_rounding(run.bound_size(a) / least, 0)


def bound_power(
    run: ErrorBounds, made: Tensor, x: Tensor, exponent: float | int
) -> Tensor:
    """Bound whole powers."""
    if exponent == 1:
        return run.get_error(x)
    largest = run.bound_size(x) ** exponent
    return largest - x.abs() ** exponent + run.bound_rounding(largest, 0)


def bound_inverse_root(run: ErrorBounds, made: Tensor, x: Tensor) -> Tensor:
    """Bound 1 / √x."""
    largest = (x - run.get_error(x)).clamp(min=0.0).rsqrt()
    return largest - made + run.bound_rounding(largest, 0)


def bound_exponential(run: ErrorBounds, made: Tensor, x: Tensor) -> Tensor:
    """Bound exp(x): an absolute error becomes a relative one."""
    relative = run.get_error(x) + run.compute_gamma(2, 0) * x.abs()
    relative = relative + run.compute_gamma(EXPONENTIAL)
    return made * relative.expm1() + run.tiny


def bound_tanh(run: ErrorBounds, made: Tensor, x: Tensor) -> Tensor:
    """Bound tanh, whose slope is at most 1, computed from an exponential."""
    return run.get_error(x) + run.compute_gamma(EXPONENTIAL)


def bound_tanh_gradient(
    run: ErrorBounds, made: Tensor, upstream: Tensor, output: Tensor
) -> Tensor:
    """Bound upstream · (1 - output²)."""
    error = run.get_error(output)
    carried = run.get_error(upstream) * (1 - output.square())
    carried += run.bound_size(upstream) * error * (2 * output.abs() + error)
    sizes = run.bound_size(upstream) * (1 + run.bound_size(output).square())
    return carried + run.bound_rounding(sizes, 1)


def bound_sum(
    run: ErrorBounds,
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
    sizes = run.bound_size(x).sum(dim, keepdim)
    carried = run.get_error(x).sum(dim, keepdim)
    # Sums over broadcast axes and over uses are stored as they grow.
    return (carried + run.bound_rounding(sizes, 0, count + STORED)) / parts


def bound_relu_gradient(
    run: ErrorBounds,
    made: Tensor,
    upstream: Tensor,
    x: Tensor,
    threshold: float | int,
) -> Tensor:
    """Bound ReLU's gradient: of an x near 0 it is not known which it is."""
    known = x.abs() > run.get_error(x)
    passed = run.get_error(upstream).where(x > 0, 0.0)
    return passed.where(known | (run.get_error(x) == 0), run.bound_size(upstream))


def bound_softmax(
    run: ErrorBounds, made: Tensor, x: Tensor, dim: int, half: bool = False
) -> Tensor:
    """Bound weights: their relative error is the scores' absolute one."""
    seen = x > -torch.inf
    error = run.get_error(x)
    away = (x.amax(dim, keepdim=True) - x).where(seen, 0.0)
    away = away + 2 * error.amax(dim, keepdim=True)
    lse = x.logsumexp(dim, keepdim=True).abs()
    rho = (
        error
        + run.compute_gamma(2, 0) * (away + lse)
        + run.compute_gamma(EXPONENTIAL, 1)
    )
    rho = rho.where(seen, 0.0).clamp(max=100.0)
    sums = run.compute_gamma(x.shape[dim] + 4 * run.tiles + 1, 1)
    tau = rho + (made * rho.exp()).sum(dim, keepdim=True).log() + sums
    # No weight passes 1, unless its score is computed again for it.
    upper = torch.minimum(made * tau.exp(), (2 * rho + sums).exp())
    lower = made * (-tau).exp()
    error = torch.maximum(upper - made, made - lower) + run.tiny * seen
    # Rounded only where they multiply the values.
    run.unrounded[make_key(made)] = error
    return error + run.bound_narrowing(upper)


def bound_softmax_gradient(
    run: ErrorBounds,
    made: Tensor,
    upstream: Tensor,
    weights: Tensor,
    dim: int,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Bound weights ∘ (upstream - Σ weights · upstream)."""
    terms = run._get_terms(upstream) + run.get_error(upstream)
    error, most = run.get_error(weights), run.bound_size(weights)
    size = (most * terms).sum(dim, keepdim=True)
    mean = (weights * upstream).sum(dim, keepdim=True)
    carried = (error * terms + most * run.get_error(upstream)).sum(dim, keepdim=True)
    carried += run.bound_rounding(size, weights.shape[dim], STORED + 1)
    # The mean of dP is also Σ dO ∘ O, of the rounded output.
    carried += run.bound_narrowing(size + carried)
    apart = run.get_error(upstream) + carried + run.bound_rounding(terms + size, 0)
    away = (upstream - mean).abs()
    unrounded = run.unrounded.get(make_key(weights), error)
    carried = unrounded * away + most * apart
    carried += run.bound_rounding(most * (away + apart), 0, FACTOR)
    # Rounded before they multiply keys and queries.
    return carried + run.bound_narrowing(most * (away + apart))


def bound_masked(
    run: ErrorBounds,
    made: Tensor,
    x: Tensor,
    mask: Tensor,
    value: Tensor | float | int,
) -> Tensor:
    """Return the errors of a masked fill: 0 where a value is filled in."""
    run.terms[make_key(made)] = run._get_terms(x).masked_fill(mask, 0.0)
    return run.get_error(x).masked_fill(mask, 0.0)


RULES: dict[str, Callable[..., Tensor]] = {
    "mm": bound_product, "bmm": bound_product, "addmm": bound_product_and_sum,
    "add": bound_addition, "sub": bound_addition, "mul": bound_multiplication,
    "div": bound_division, "pow": bound_power, "rsqrt": bound_inverse_root,
    "exp": bound_exponential, "tanh": bound_tanh,
    "tanh_backward": bound_tanh_gradient,
    "sum": bound_sum,
    "threshold_backward": bound_relu_gradient,
    "_softmax": bound_softmax, "_softmax_backward_data": bound_softmax_gradient,
    "masked_fill": bound_masked,
    "neg": lambda run, made, x: run.get_error(x),
    "relu": lambda run, made, x: run.get_error(x).where(
        x > -run.get_error(x), 0.0
    ),
    "mean": lambda run, made, x, dim=None, keepdim=False, dtype=None: bound_sum(
        run, made, x, dim, keepdim, dtype, x.numel() // made.numel()
    ),
    "where": lambda run, made, where, a, b: torch.where(
        where, run.get_error(a), run.get_error(b)
    ),
}  # fmt: skip
MOVES = {
    "_to_copy", "_unsafe_view", "alias", "cat", "clone", "constant_pad_nd",
    "detach", "expand", "flip", "index", "permute", "repeat", "select",
    "select_backward", "slice", "slice_backward", "split", "squeeze", "stack",
    "t", "transpose", "unbind", "unsqueeze", "view",
}  # fmt: skip
CONSTANTS = {"empty_like", "full_like", "new_zeros", "ones_like", "zeros_like"}
