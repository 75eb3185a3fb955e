"""How long a fused forward kernel takes, predicted from what it has to do.

Counted are whole tiles of scores: their products, one exponential a score, the
other instructions in single precision, and the bytes of inputs and results.
Each has a ceiling. If all of them are busy at the same time, the slowest
decides; if products wait for the softmax and the softmax for them, their times
add up. Not counted are addresses, copies from caches, and waiting.

Source: three ceilings and their alternation: section 3 of FlashAttention-3,
    Shah et al. (2024), https://arxiv.org/abs/2407.08608.
Axes: B batch, H heads, T queries, S keys, D width of query and key, E of values
"""

from dataclasses import dataclass

from attnbook.profiling.roofline import DEVICES, EXPONENTIAL_RATES
from attnbook.profiling.sizes import Sizes

# A score's maximum, scaling and subtraction, sum, and half of a conversion,
# which takes two numbers.
INSTRUCTIONS = 3.5


@dataclass(frozen=True)
class KernelCount:
    """What a kernel does in one call.

    Attributes:
        products: operations; a multiplication and an addition are two.
        instructions: in single precision.
        programs: into which the call is divided.
    """

    products: int
    exponentials: int
    instructions: float
    bytes: int
    programs: int


def count_forward(sizes: Sizes, rows: int, columns: int) -> KernelCount:
    """Return what attention without a mask does, in tiles of rows by columns."""
    programs = sizes.B * sizes.H * -(-sizes.T // rows)
    tiles = programs * -(-sizes.S // columns)
    scores = tiles * rows * columns
    rescaled = tiles * rows * sizes.E
    logsumexps = 4 * sizes.B * sizes.H * sizes.T
    return KernelCount(
        2 * scores * (sizes.D + sizes.E),
        scores,
        INSTRUCTIONS * scores + rescaled,
        sizes.query + sizes.key + sizes.value + sizes.output + logsumexps,
        programs,
    )


def predict_seconds(count: KernelCount, gpu: str) -> dict[str, float]:
    """Return the time by each ceiling, and what they predict together.

    One program runs in each multiprocessor at a time; the last wave may leave a
    part of the GPU idle.

    Args:
        gpu: its name in `DEVICES`.

    Returns:
        Seconds: "products", "exponentials", "instructions", "memory"; "least",
        if all overlap; "alternating", if products wait for the softmax and the
        softmax for them.
    """
    preset, places = DEVICES[gpu], DEVICES[gpu].processors
    units = {
        "products": count.products / preset.rates[2],
        "exponentials": count.exponentials / EXPONENTIAL_RATES[gpu],
        # A multiply-add counts as two operations, and as one instruction.
        "instructions": count.instructions / (preset.rates[4] / 2),
    }
    waves = -(-count.programs // places) * places / count.programs
    memory = count.bytes / preset.bandwidth
    return units | {
        "memory": memory,
        "least": max(max(units.values()) * waves, memory),
        "alternating": max(sum(units.values()) * waves, memory),
    }
