"""One layer's attention in numbers: what the cost calculator shows.

Axes: B sequences, T queries, S keys
"""

from attnbook.profiling import memory
from attnbook.profiling.block import (
    Block,
    count_cache_bytes,
    get_attention_sizes,
)
from attnbook.profiling.roofline import Machine, bound_seconds
from attnbook.profiling.sizes import Sizes, add_counts
from attnbook.profiling.steps import (
    count_backward_steps,
    count_fused,
    count_fused_backward,
    count_steps,
)

PHASES = ("prefill", "train", "decode")


def calculate(
    block: Block, machine: Machine, phase: str, B: int, n: int, itemsize: int
) -> dict[str, int | float]:
    """Return what one layer's attention costs, step by step and fused.

    Args:
        block: the model's sizes.
        machine: the device's ceilings.
        phase: "prefill", n positions at once; "train", with gradients; or
            "decode", one position after n - 1 others, from a KV cache.
        B: sequences.
        n: their length.
        itemsize: bytes of a number.

    Raises:
        ValueError: if the phase is none of these, or a size is below 1.
    """
    if phase not in PHASES:
        raise ValueError(f"the phase is {phase!r}, none of {PHASES}")
    T = 1 if phase == "decode" else n
    sizes = get_attention_sizes(block, B, T, n, itemsize)
    steps, whole = [*count_steps(sizes).values()], [count_fused(sizes)]
    passes = 1
    if phase == "train":
        steps += count_backward_steps(sizes).values()
        whole.append(count_fused_backward(sizes))
        passes = 3
    held = memory.count_peak_training if phase == "train" else memory.count_peak_forward
    products = 4 * B * block.H * T * n * block.D * passes
    others = 2 * block.weights * B * T * passes
    return {
        "flops": add_counts(steps).flops,
        "flops_fused": add_counts(whole).flops,
        "bytes": add_counts(steps).bytes,
        "bytes_fused": add_counts(whole).bytes,
        "memory": held(sizes),
        "memory_fused": count_peak_fused(sizes, phase == "train"),
        "cache": count_cache_bytes(block, B, n, itemsize),
        "seconds": bound_seconds(machine, steps),
        "seconds_fused": bound_seconds(machine, whole),
        "others": others,
        "share": products / (products + others),
    }


def count_peak_fused(sizes: Sizes, training: bool) -> int:
    """Return the peak bytes of attention that never stores its scores.

    In the forward pass the output; in training also one number a query and,
    in the backward pass, the three gradients.
    """
    if not training:
        return sizes.output
    sums = sizes.B * sizes.H * sizes.T * 4
    return sizes.output + sums + sizes.query + sizes.key + sizes.value
