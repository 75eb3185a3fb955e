"""Gradients of what an answer returned, for a random gradient sent back."""

import contextlib
import functools
import importlib
from collections.abc import Sequence

import torch
from torch import Tensor

UPSTREAM = 2017  # seed of the gradients sent back; never the global seed


def run_backward(
    output: tuple[Tensor, ...], leaves: list[Tensor]
) -> tuple[Tensor, ...]:
    """Return the gradients of the leaves for a random upstream gradient."""
    noise = torch.Generator().manual_seed(UPSTREAM)
    ends: list[tuple[Tensor, Tensor]] = []
    # Without leaves, no gradient is asked for: a mask of 5,003 x 5,003
    # numbers would need as many random ones.
    for x in output if leaves else ():
        up = torch.randn(x.shape, generator=noise, dtype=torch.float64)
        if x.requires_grad:
            ends.append((x, up.to(x.dtype)))
    found: Sequence[Tensor | None] = [None] * len(leaves)
    if ends:
        reached, upstream = zip(*ends, strict=True)
        found = torch.autograd.grad(reached, leaves, upstream, allow_unused=True)
    return tuple(
        torch.zeros_like(x) if g is None else g.detach().clone()
        for g, x in zip(found, leaves, strict=True)
    )


@functools.cache
def preload_backward() -> None:
    """Import what PyTorch's first backward pass imports, which takes seconds.

    Cut short by an alarm, an import stays broken.
    """
    with contextlib.suppress(ImportError):
        importlib.import_module("torch.fx.experimental.symbolic_shapes")
