"""Exercise: design runs that tell what limits a kernel.

Source: Williams, Waterman and Patterson (2009),
    https://doi.org/10.1145/1498765.1498785
Axes: B batch, H heads, T queries, S keys, D width of a head
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from attnbook.exercises.edit import renumber
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, shuffle_cases

LIMITS = ("memory", "products", "exponentials", "launch")


@dataclass
class Kernel:
    """A fused attention kernel whose time has one limit.

    Called with sizes, it returns its seconds.

    Attributes:
        limit: one of `LIMITS`.
        rate: bytes, FLOPs or exponentials a second, whichever is the limit;
            for a launch, its seconds.
    """

    limit: str
    rate: float

    def __call__(self, B: int, H: int, T: int, S: int, D: int) -> float:
        """Return the seconds of one call in half precision."""
        if self.limit == "launch":
            return self.rate
        pairs = B * H * T * S
        amounts = {
            "memory": 4 * B * H * D * (T + S),
            "products": 4 * pairs * D,
            "exponentials": pairs,
        }
        return amounts[self.limit] / self.rate


def bottleneck(run: Callable, B: int, H: int, T: int, S: int, D: int) -> int:
    """Return what limits a kernel, as a number.

    0: memory. 1: products. 2: exponentials. 3: the time of a launch.

    Args:
        run: (B, H, T, S, D) to seconds.
        B: sequences in the sizes that were tried.
        H: its heads.
        T: its queries.
        S: its keys.
        D: width of a head.
    """
    usual = run(B, H, T, S, D)
    longer = run(B, H, 2 * T, 2 * S, D) / usual
    if longer < 1.5:  # nothing changes
        return 3
    if longer < 3:  # twice the bytes, four times the pairs
        return 0
    wider = run(B, H, T, S, 2 * D) / usual
    return 1 if wider > 1.5 else 2


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Each limit, for prefill, for decoding and for a batch of sequences."""
    rates = {
        "memory": 3.35e12,
        "products": 989e12,
        "exponentials": 3.9e12,
        "launch": 2e-5,
    }
    named = {
        "memory": "limited by memory",
        "products": "limited by its products",
        "exponentials": "limited by its exponentials",
        "launch": "limited by the time of a launch",
    }

    def drawn(low: int, high: int) -> int:
        return int(draw_integers(rng, low, high, 1))

    cases = []
    for prefix in ("in prefill", "with few queries", "with a batch"):
        for limit in LIMITS:
            B = drawn(8, 20) if prefix == "with a batch" else 1
            S = drawn(500, 900)
            T = drawn(2, 9) if prefix == "with few queries" else S
            sizes = B, drawn(6, 14), T, S, drawn(40, 90)
            share = 0.5 + 0.4 * float(torch.rand((), generator=rng))
            kernel = Kernel(limit, rates[limit] * share)
            name = f"with a kernel that is {named[limit]}, {prefix}"
            cases.append(Case(name, (kernel, *sizes)))
    return shuffle_cases(tuple(cases), rng)


check_bottleneck = Exercise(
    title="runs that tell what limits a kernel",
    stars=3,
    minutes=20,
    section="The exponential: a third ceiling",
    solution=bottleneck,
    returns=("limit",),
    draw=draw,
    allowed="Everything is allowed but `attnbook.profiling`.",
    mistakes=(
        Mistake(
            "always-memory",
            "no run",
            "it answers “memory” whatever the kernel is",
            lambda run, *sizes: 0,
        ),
        Mistake(
            "always-products",
            "no run, and products assumed",
            "it answers “products” whatever the kernel is",
            lambda run, *sizes: 1,
        ),
        Mistake(
            "batch-only",
            "only the batch varied",
            "it varies only the batch, which multiplies bytes, products and "
            "exponentials alike",
            (
                "run(B, H, 2 * T, 2 * S, D) → run(2 * B, H, T, S, D)",
                "return 0 → return 1",
                "1 if wider > 1.5 else 2 → 1",
            ),
        ),
        Mistake(
            "width-only",
            "only the width varied",
            "it varies only the width of a head, which multiplies bytes and "
            "products alike and leaves both exponentials and launches "
            "unchanged",
            lambda run, B, H, T, S, D: (
                1 if run(B, H, T, S, 2 * D) > 1.5 * run(B, H, T, S, D) else 2
            ),
        ),
        Mistake(
            "length-only",
            "only the length varied",
            "it varies only the length, which multiplies products and "
            "exponentials alike",
            renumber(bottleneck, {2: 1}),
        ),
        Mistake(
            "launch-not-considered",
            "launch taken for memory",
            "it does not consider that the time may not depend on the sizes "
            "at all: a kernel limited by its launch is taken for one limited "
            "by memory",
            renumber(bottleneck, {3: 0}),
        ),
        Mistake(
            "launch-as-exponentials",
            "launch taken for exponentials",
            "it takes a kernel whose time never changes for one limited by "
            "exponentials",
            renumber(bottleneck, {3: 2}),
        ),
        Mistake(
            "swapped",
            "products and exponentials confused",
            "it confuses products and exponentials: the width of a head "
            "changes the products and not the number of exponentials",
            renumber(bottleneck, {1: 2, 2: 1}),
        ),
        Mistake(
            "square-of-memory",
            "memory thought to grow with the square",
            "it expects the bytes of a fused kernel to grow with the square "
            "of the length; they grow with the length, because scores are "
            "never written to memory",
            renumber(bottleneck, {0: 1, 1: 0}),
        ),
        Mistake(
            "memory-as-launch",
            "memory and launch confused",
            "it confuses memory and launch: if the time doubles with the "
            "length, memory is the limit; if the time never changes, the "
            "launch is",
            renumber(bottleneck, {0: 3, 3: 0}),
        ),
    ),
)
