"""Exercise: find out what is wrong with a benchmark, by running it.

Source: the faults are those of the chapter's pitfalls
Axes: B batch, H heads, n queries and keys, D width of a head
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from attnbook.exercises.edit import renumber
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, shuffle_cases

# What can be built into a benchmark, and the number of its fault.
FAULTS = {
    "right": 0,
    "clock not synchronized": 1,
    "first call counted": 2,
    "multiply-adds counted as one": 3,
    "causal pairs counted as a full square": 4,
    "inputs in the cache": 5,
}
LAUNCH, FIRST_CALL, CACHE = 6e-6, 0.4, 8  # seconds, seconds, times as fast


@dataclass
class Benchmark:
    """A benchmark of fused attention in half precision, maybe with a fault.

    Called with sizes, it returns the seconds of one call, as a mean over
    `calls` calls, and the speed that it reports, in FLOPs a second.

    Attributes:
        built_in: one of `FAULTS`.
        H: heads.
        D: width of a head.
        rate: FLOPs a second of the device.
        bandwidth: bytes a second of the device.
        share: of both rates that the kernel reaches.
    """

    built_in: str
    H: int
    D: int
    rate: float
    bandwidth: float
    share: float

    def __call__(
        self, B: int, n: int, causal: bool = False, calls: int = 10
    ) -> tuple[float, float]:
        """Return seconds and speed, as far as the fault allows."""
        square = 4 * B * self.H * self.D * n * n
        flops = square * (n + 1) / (2 * n) if causal else square
        moved = 8 * B * self.H * n * self.D / self.bandwidth
        if self.built_in == "inputs in the cache":
            moved /= CACHE
        seconds = max(flops / self.rate, moved) / self.share
        if self.built_in == "clock not synchronized":
            seconds = LAUNCH
        if self.built_in == "first call counted":
            seconds += FIRST_CALL / calls
        if self.built_in == "multiply-adds counted as one":
            flops /= 2
        if self.built_in == "causal pairs counted as a full square":
            flops = square
        return seconds, flops / seconds


def benchmark_fault(
    run: Callable, H: int, D: int, rate: float, bandwidth: float
) -> int:
    """Return the number of a benchmark's fault, 0 if there is none.

    1: the clock does not wait for the GPU. 2: the first call is counted.
    3: a multiplication and an addition count as one operation. 4: the speed of
    causal attention is computed with all pairs. 5: the inputs stay in the
    cache.

    Args:
        run: (B, n, causal=False, calls=10) to the seconds of one call and the
            reported speed.
        H: heads.
        D: width of a head.
        rate: FLOPs a second of the device.
        bandwidth: bytes a second of the device.
    """
    n = 16384
    square = 4 * H * D * n * n
    seconds, speed = run(1, n)
    if seconds < square / rate:  # faster than the device
        return 1
    if run(1, 512, calls=1)[0] > 1.5 * run(1, 512, calls=1000)[0]:
        return 2
    if seconds * speed < 0.75 * square:
        return 3
    seconds, speed = run(1, n, causal=True)
    if seconds * speed > 0.75 * square:
        return 4
    short, _ = run(64, 16)  # memory-bound: 4 tensors of 2 bytes a number
    return 5 if short < 8 * 64 * H * 16 * D / bandwidth else 0


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """A right benchmark and every fault, on two devices."""

    def case(built_in: str, rate: float, bandwidth: float) -> Case:
        H = int(draw_integers(rng, 8, 20, 1))
        D = int(draw_integers(rng, 2, 5, 1)) * 32
        share = 0.55 + 0.3 * float(torch.rand((), generator=rng))
        what = "no fault" if built_in == "right" else f"the fault “{built_in}”"
        made = Benchmark(built_in, H, D, rate, bandwidth, share)
        return Case(f"with a benchmark that has {what}", (made, H, D, rate, bandwidth))

    devices = (312e12, 2.0e12), (989e12, 3.35e12)
    cases = [case(kind, *device) for kind in FAULTS for device in devices]
    return shuffle_cases(tuple(cases), rng)


check_benchmark_fault = Exercise(
    title="the fault of a benchmark",
    stars=3,
    minutes=25,
    section="Reading a benchmark",
    solution=benchmark_fault,
    key_line="if seconds < square / rate:  # faster than the device",
    returns=("fault",),
    draw=draw,
    allowed="Everything is allowed but `attnbook.profiling`.",
    mistakes=(
        Mistake(
            "always-right",
            "no fault found",
            "it reports no fault whatever the benchmark is",
            lambda run, H, D, rate, bandwidth: 0,
        ),
        Mistake(
            "clock-not-tested",
            "time not compared with the device",
            "it does not compare the time of a compute-bound call with the "
            "least time that the device needs, so it misses a clock that does "
            "not wait for the GPU",
            "return 1 → pass",
        ),
        Mistake(
            "first-call-not-tested",
            "number of calls not varied",
            "it does not vary the number of calls, so it cannot notice that "
            "the first call is counted",
            "calls=1000 → calls=1",
        ),
        Mistake(
            "flops-not-tested",
            "FLOPs not counted by hand",
            "it does not multiply speed and seconds and compare the product "
            "with a count by hand, so a factor of two goes unnoticed",
            "return 3 → pass",
        ),
        Mistake(
            "causal-not-tested",
            "causal attention not tested",
            "it does not run causal attention, where only half of the pairs "
            "are computed",
            "return 4 → pass",
        ),
        Mistake(
            "cache-not-tested",
            "time not compared with the bandwidth",
            "it does not compare the time of a memory-bound call with the bandwidth",
            "return 5 if → return 0 if",
        ),
        Mistake(
            "below-peak",
            "below the peak taken for a fault",
            "it takes every benchmark that stays below the rates of the "
            "device for one that counts the first call; no kernel reaches "
            "these rates",
            (
                "run(1, 512, calls=1)[0] > → seconds >",
                "1.5 * run(1, 512, calls=1000)[0] → 1.1 * square / rate",
            ),
        ),
        Mistake(
            "conventions-swapped",
            "two conventions confused",
            "it confuses faults 3 and 4: multiply-adds counted as one, and "
            "causal pairs counted as a full square",
            renumber(benchmark_fault, {3: 4, 4: 3}),
        ),
        Mistake(
            "clocks-swapped",
            "two clocks confused",
            "it confuses faults 1 and 2: a clock that does not wait makes "
            "calls look fast, and a counted first call makes them look slow",
            renumber(benchmark_fault, {1: 2, 2: 1}),
        ),
        Mistake(
            "any-fault",
            "all faults reported as 1",
            "it finds out that there is a fault and reports every fault as 1",
            lambda *given: min(benchmark_fault(*given), 1),
        ),
    ),
)
