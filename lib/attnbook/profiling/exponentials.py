"""Exponentials: a third ceiling, beside products and memory.

A processor computes exponentials in other units than products, and more slowly.
Each score needs one exponential, whatever the width of the head.

Source: section 3.1 of FlashAttention-3, Shah et al. (2024),
    https://arxiv.org/abs/2407.08608
Axes: B batch, H heads, T queries, S keys, D width of query and key, E of
    values
"""

import torch

from attnbook.profiling.roofline import Machine
from attnbook.profiling.sizes import Sizes
from attnbook.profiling.steps import count_fused
from attnbook.profiling.timing import time_calls


def bound_seconds_by_ceiling(
    machine: Machine, exponentials: float, sizes: Sizes
) -> dict[str, float]:
    """Return the least time of fused attention by each of three ceilings.

    Args:
        machine: the ceilings of products and of memory.
        exponentials: how many the machine computes a second.
        sizes: of one call.

    Raises:
        ValueError: if the rate of exponentials is not above 0.
    """
    if not exponentials > 0:
        raise ValueError(
            f"a machine computes {exponentials} exponentials a second; the "
            f"rate must be above 0"
        )
    pairs = sizes.B * sizes.H * sizes.T * sizes.S
    return {
        "memory": count_fused(sizes).bytes / machine.bandwidth,
        "products": 2 * pairs * (sizes.D + sizes.E) / machine.flops,
        "exponentials": pairs / exponentials,
    }


def measure_exponential_rate(
    width: int = 128, rounds: int = 25, device: str = "cpu"
) -> float:
    """Return the exponentials a second, of numbers that stay in the cache."""
    x = torch.randn(width, width, generator=torch.Generator().manual_seed(0))
    x = x.to(device)
    out = torch.empty_like(x)
    taken = time_calls({"exp": lambda: torch.exp(x, out=out)}, rounds, device)
    return x.numel() / min(taken["exp"])
