"""Small helpers to draw the inputs of cases from a private generator."""

import torch
from torch import Tensor


def draw_normal(
    rng: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return standard normal numbers."""
    return torch.randn(*shape, generator=rng, dtype=torch.float64).to(dtype)


def draw_integers(rng: torch.Generator, low: int, high: int, *shape: int) -> Tensor:
    """Return integers from low to high, both included."""
    return torch.randint(low, high + 1, shape, generator=rng)


def shuffle_cases(cases: tuple, rng: torch.Generator) -> tuple:
    """Return the cases, the first in its place and the rest in random order.

    Where answers are one of a few numbers, their order cannot be learned.
    """
    order = 1 + torch.randperm(len(cases) - 1, generator=rng)
    return (cases[0], *(cases[i] for i in order.tolist()))


def to_double(inputs: tuple) -> tuple:
    """Return inputs with their floating-point tensors in double precision."""
    return cast(inputs, torch.float64)


def to_half(inputs: tuple) -> tuple:
    """Return inputs with their floating-point tensors in half precision."""
    return cast(inputs, torch.float16)


def cast(inputs: tuple, dtype: torch.dtype) -> tuple:
    """Return inputs with their floating-point tensors in another precision."""
    return tuple(
        x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x
        for x in inputs
    )
