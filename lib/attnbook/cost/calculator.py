"""One layer's attention in numbers: what the cost calculator shows.

Chapter: chapters/10_cost
Source: none (own work)
Axes: B sequences, T queries, S keys
"""

from attnbook.cost import memory
from attnbook.cost.block import Block, cache, sizes_of
from attnbook.cost.roofline import Machine, bound
from attnbook.cost.sizes import Sizes, total
from attnbook.cost.steps import backward, forward, fused, fused_backward

PHASES = ("read", "train", "write")


def calculate(
    block: Block, machine: Machine, phase: str, B: int, n: int, itemsize: int
) -> dict[str, int | float]:
    """Return what one layer's attention costs, step by step and fused.

    Args:
        block: the model's sizes.
        machine: the device's ceilings.
        phase: "read" n positions at once; "train" on them, there and back; or
            "write" one more position after n - 1 others, from a cache.
        B: sequences.
        n: their length.
        itemsize: bytes of a number.

    Raises:
        ValueError: if the phase is none of these, or a size is below 1.
    """
    if phase not in PHASES:
        raise ValueError(f"the phase is {phase!r}, none of {PHASES}")
    T = 1 if phase == "write" else n
    sizes = sizes_of(block, B, T, n, itemsize)
    steps, whole = [*forward(sizes).values()], [fused(sizes)]
    passes = 1
    if phase == "train":
        steps += backward(sizes).values()
        whole.append(fused_backward(sizes))
        passes = 3
    held = memory.peak_training if phase == "train" else memory.peak_forward
    products = 4 * B * block.H * T * n * block.D * passes
    others = 2 * block.weights * B * T * passes
    return {
        "flops": total(steps).flops,
        "flops_fused": total(whole).flops,
        "bytes": total(steps).bytes,
        "bytes_fused": total(whole).bytes,
        "memory": held(sizes),
        "memory_fused": alone(sizes, phase == "train"),
        "cache": cache(block, B, n, itemsize),
        "seconds": bound(machine, steps),
        "seconds_fused": bound(machine, whole),
        "others": others,
        "share": products / (products + others),
    }


def alone(sizes: Sizes, training: bool) -> int:
    """Return the most bytes of attention that never holds its scores.

    Forwards the output; in training one number a query as well, and on the
    way back the three gradients.
    """
    if not training:
        return sizes.output
    sums = sizes.B * sizes.H * sizes.T * 4
    return sizes.output + sums + sizes.query + sizes.key + sizes.value
