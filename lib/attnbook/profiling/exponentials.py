"""Exponentials: a third ceiling, beside products and memory.

A processor computes exponentials in other units than products, and more slowly.
Each score needs one exponential, whatever the width of the head.

Source: section 3.1 of FlashAttention-3, Shah et al. (2024),
    https://arxiv.org/abs/2407.08608
Axes: B batch, H heads, T queries, S keys, D width of query and key, E of
    values
"""

from attnbook.profiling.roofline import Machine
from attnbook.profiling.sizes import Sizes
from attnbook.profiling.steps import count_fused


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
