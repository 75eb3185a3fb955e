"""What recorded timings share: calls of one direction or both, and summaries.

Axes: B batch, H heads, T queries, S keys, D width of query and key
"""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from attnbook.profiling.timing import time_calls
from workshop.bench.timing import compute_quartiles

DRAWS = 2000  # of the bootstrap
Calls = dict[str, Callable[[], object]]
Clock = Callable[[], float]


def make_forward_call(
    attention: Callable, inputs: Sequence[Tensor]
) -> Callable[[], Tensor]:
    """Return a call of a function of query, key and value, no gradients."""

    def call() -> Tensor:
        with torch.no_grad():
            return attention(*inputs[:3])

    return call


def make_training_call(
    attention: Callable, inputs: Sequence[Tensor]
) -> Callable[[], tuple]:
    """Return a call forwards and backwards; the last input is the upstream."""
    *leaves, upstream = inputs
    leaves = [x.clone().requires_grad_() for x in leaves]
    return lambda: torch.autograd.grad(attention(*leaves), leaves, upstream)


def summarize_times(
    calls: Calls, rounds: int, clock: Clock = time.perf_counter
) -> dict[str, dict[str, float]]:
    """Return quartiles and the least of each call's milliseconds."""
    found = {}
    for name, taken in time_calls(calls, rounds, clock=clock).items():
        milliseconds = [1000 * seconds for seconds in taken]
        low, middle, high = compute_quartiles(milliseconds)
        found[name] = {"low": low, "middle": middle, "high": high}
        found[name]["least"] = min(milliseconds)
    return found


def compare_directions(
    ours: Callable,
    theirs: Callable,
    inputs: Sequence[Tensor],
    rounds: int,
    clock: Clock = time.perf_counter,
) -> dict[str, dict[str, float]]:
    """Return the time ratio of two implementations, forward and of both passes.

    Args:
        ours: a function of query, key and value.
        theirs: another one.
        inputs: query, key, value and upstream.
        rounds: how often both are timed.
        clock: what is read.
    """
    return {
        name: compute_time_ratio(
            direction(ours, inputs), direction(theirs, inputs), rounds, clock
        )
        for name, direction in (
            ("forward", make_forward_call),
            ("both", make_training_call),
        )
    }


def compute_time_ratio(
    ours: Callable,
    theirs: Callable,
    rounds: int,
    clock: Clock = time.perf_counter,
) -> dict[str, float]:
    """Return the middle ratio of the rounds, and its 95 % bootstrap interval.

    Both are timed in every round, so that what a round does to both cancels.
    """
    taken = time_calls({"ours": ours, "theirs": theirs}, rounds, clock=clock)
    times = {
        name: 1000 * torch.tensor(seconds, dtype=torch.float64)
        for name, seconds in taken.items()
    }
    ratios = times["ours"] / times["theirs"]
    rng = torch.Generator().manual_seed(0)
    rows = torch.randint(len(ratios), (DRAWS, len(ratios)), generator=rng)
    cuts = torch.tensor([0.025, 0.975], dtype=torch.float64)
    low, high = ratios[rows].median(dim=1).values.quantile(cuts).tolist()
    return {
        "ratio": float(ratios.median()),
        "low": low,
        "high": high,
        "ours_ms": float(times["ours"].median()),
        "theirs_ms": float(times["theirs"].median()),
    }
