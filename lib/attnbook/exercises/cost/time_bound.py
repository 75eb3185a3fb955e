"""Exercise: the least time for steps, on a machine with two ceilings.

Source: Williams, Waterman and Patterson (2009),
    https://doi.org/10.1145/1498765.1498785
"""

import torch

from attnbook.exercises.cost.flops import ALLOWED
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers


def time_bound(
    flops: list[int], moved: list[int], rate: float, bandwidth: float
) -> float:
    """Return the least time for steps that run one after the other."""
    steps = zip(flops, moved, strict=True)
    return sum(max(f / rate, b / bandwidth) for f, b in steps)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One step that waits for either; then some that wait for both."""

    def numbers(low, high, count):
        return draw_integers(rng, low, high, count).tolist()

    rate, bandwidth = 100.0, 8.0
    long, wide = numbers(4000, 9000, 2), numbers(300, 900, 2)
    mixed = (
        [long[0], wide[0], long[1], wide[1]],
        [*numbers(50, 90, 1), *numbers(200, 400, 1)] * 2,
    )
    return (
        Case("with one step of many operations", (long[:1], [8], rate, bandwidth)),
        Case("with one step of many bytes", (wide[:1], [400], rate, bandwidth)),
        Case("with two steps of each kind", (*mixed, rate, bandwidth)),
        Case("on a machine that multiplies faster", (*mixed, 1000.0, 8.0)),
        Case("on a machine that moves faster", (*mixed, 100.0, 80.0)),
    )


check_time_bound = Exercise(
    title="roofline time of several steps",
    stars=1,
    minutes=10,
    section="The roofline: memory-bound or compute-bound?",
    solution=time_bound,
    returns=("seconds",),
    draw=draw,
    allowed=ALLOWED,
    mistakes=(
        Mistake(
            "max-of-sums",
            "maximum of the sums",
            "operations and bytes are summed over the steps first; the steps "
            "run one after the other, so the maximum must be taken for each "
            "step",
            lambda flops, moved, rate, bandwidth: max(
                sum(flops) / rate, sum(moved) / bandwidth
            ),
        ),
        Mistake(
            "adds-both",
            "both times added",
            "the times for operations and bytes are added; a machine does "
            "both at once, so the longer one counts",
            "max(f / rate, b / bandwidth) → f / rate + b / bandwidth",
        ),
        Mistake(
            "least",
            "minimum instead of maximum",
            "it takes the shorter of the two times; a step ends when both are done",
            "max( → min(",
        ),
        Mistake(
            "arithmetic-only",
            "memory traffic not counted",
            "only the time for operations is counted",
            "max(f / rate, b / bandwidth) → f / rate",
        ),
        Mistake(
            "memory-only",
            "arithmetic not counted",
            "only the time for moving bytes is counted",
            "max(f / rate, b / bandwidth) → b / bandwidth",
        ),
        Mistake(
            "slowest-step",
            "slowest step only",
            "it returns the time of the slowest step; the steps run one after "
            "the other, so their times are added",
            "sum( → max(",
        ),
        Mistake(
            "mean",
            "mean instead of a sum",
            "it returns the mean of the steps' times; it should be their sum",
            lambda flops, *rest: time_bound(flops, *rest) / len(flops),
        ),
        Mistake(
            "swapped",
            "rates swapped",
            "operations are divided by the bandwidth and bytes by the compute rate",
            "f / rate, b / bandwidth → f / bandwidth, b / rate",
        ),
        Mistake(
            "times-the-rate",
            "multiplied by the rate",
            "the work is multiplied by a rate; it should be divided by it",
            "f / rate, b / bandwidth → f * rate, b * bandwidth",
        ),
        Mistake(
            "milliseconds",
            "milliseconds instead of seconds",
            "it returns milliseconds; the time should be in seconds",
            lambda *given: 1000 * time_bound(*given),
        ),
        Mistake(
            "first-step",
            "first step only",
            "only the first step is timed",
            lambda flops, moved, *rest: time_bound(flops[:1], moved[:1], *rest),
        ),
        Mistake(
            "product",
            "product of the times",
            "the two times are multiplied; the longer one counts",
            "max(f / rate, b / bandwidth) → (f / rate) * (b / bandwidth)",
        ),
    ),
)
