"""The time of a call on a CPU or a GPU, beside that of others.

Source: PyTorch's benchmark utilities,
    https://docs.pytorch.org/docs/stable/benchmark_utils.html; CUDA events,
    https://docs.pytorch.org/docs/stable/notes/cuda.html
"""

import random
import time
from collections.abc import Callable, Mapping

import torch
from torch.utils.benchmark import Timer

MIN_RUN_SECONDS = 1e-3


def measure_seconds(
    call: Callable[[], object],
    device: str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the seconds of a call that has run before.

    On a CPU it runs until reading the clock no longer matters; the clock
    `time.process_time` leaves out other processes. On "cuda" it is the time
    between two events.
    """
    if device == "cpu":
        threads = torch.get_num_threads()
        timer = Timer(
            "call()", globals={"call": call}, timer=clock, num_threads=threads
        )
        return timer.blocked_autorange(min_run_time=MIN_RUN_SECONDS).median
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000


def time_calls(
    calls: Mapping[str, Callable[[], object]],
    rounds: int,
    device: str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Return the seconds of every call in every round, after a warm-up.

    The order is drawn anew in each round: what changes over the rounds, as a
    processor's clock does, then changes all calls alike. `device` and `clock`
    are those of `measure_seconds`.
    """
    for call in calls.values():
        call()
    rng = random.Random(0)
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name in rng.sample(list(calls), len(calls)):
            seconds = measure_seconds(calls[name], device=device, clock=clock)
            taken[name].append(seconds)
    return taken
