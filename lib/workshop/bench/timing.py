"""How long calls take, in turns, and which kernel does the work."""

import random
from collections.abc import Callable, Mapping, Sequence

import torch
from torch.autograd import DeviceType
from torch.profiler import profile

from attnbook.profiling.timing import measure_seconds

ROUNDS = 7


def measure_milliseconds(call: Callable[[], object], device: str) -> float:
    """Return the median time of a call; on a GPU, of calls with an empty L2 cache."""
    if device == "cpu":
        return 1e3 * measure_seconds(call)
    from triton.testing import do_bench

    return do_bench(call, warmup=2, rep=10, return_mode="median")


def time_in_turns(
    calls: Mapping[str, Callable[[], object]], device: str, rounds: int = ROUNDS
) -> dict[str, list[float]]:
    """Return the milliseconds of each call in each round.

    The order is drawn anew in each round: a GPU that becomes slower is so for
    every call, and no call always follows the same other one.
    """
    rng = random.Random(0)
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name in rng.sample(list(calls), len(calls)):
            taken[name].append(measure_milliseconds(calls[name], device))
    return taken


def compute_quartiles(values: Sequence[float]) -> list[float]:
    cuts = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    return torch.tensor(values, dtype=torch.float64).quantile(cuts).tolist()


def find_kernel(call: Callable[[], object], device: str) -> str:
    """Return the kernel, or on a CPU the operator, that takes most of a call's time."""
    with profile() as run:
        call()
        if device == "cuda":
            torch.cuda.synchronize()
    kind, unit = DeviceType.CPU, "cpu"
    if device == "cuda":
        kind, unit = DeviceType.CUDA, "device"
    events = [event for event in run.events() if event.device_type == kind]
    time = f"self_{unit}_time_total"
    longest = max(events, key=lambda event: getattr(event, time), default=None)
    return longest.name if longest else "unknown"
