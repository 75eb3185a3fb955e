"""How long it takes: medians of interleaved repeats, inputs out of the cache.

Chapter: chapters/11_flash_attention
Source: none
Axes: none
"""

import time
from collections.abc import Callable, Sequence
from itertools import cycle

import torch
from torch import Tensor

ROUNDS = 9
SECONDS = 0.01


def seconds(calls: Sequence[Callable], times: int, device: str) -> float:
    """Return the time of one call: they are made in turn, so many times."""
    turn = cycle(calls)
    if device == "cpu":
        begun = time.perf_counter()
        for _ in range(times):
            next(turn)()
        return (time.perf_counter() - begun) / times
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(times):
        next(turn)()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000 / times


def interleaved(
    calls: dict[str, Sequence[Callable]], device: str, rounds: int = ROUNDS
) -> dict[str, list[float]]:
    """Return each one's times, a round at a time, so that all share the heat.

    Args:
        calls: by name, the same call on different inputs.
        device: "cpu" or "cuda".
        rounds: how often each is timed.
    """
    times = {}
    for name, some in calls.items():
        once = seconds(some, 2, device)
        times[name] = max(2, min(200, round(SECONDS / max(once, 1e-6))))
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, some in calls.items():
            taken[name].append(seconds(some, times[name], device))
    return taken


def middle(values: Sequence[float]) -> tuple[float, float]:
    """Return the median, and the middle half's width as a share of it."""
    cuts = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    low, median, high = (
        torch.tensor(values, dtype=torch.float64).quantile(cuts).tolist()
    )
    return median, (high - low) / median


def copies(inputs: Sequence[Tensor], device: str) -> int:
    """Return how many sets of such inputs leave nothing in the L2 cache."""
    if device == "cpu":
        return 2
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    size = sum(x.numel() * x.element_size() for x in inputs)
    return max(2, min(16, -(-2 * cache // size)))


def ceilings(device: str) -> dict[str, float]:
    """Return what the machine does at best: bytes copied, products made."""
    large = 2**28 if device == "cuda" else 2**18
    one = torch.randn(large // 2, device=device).to(torch.bfloat16)
    two = torch.empty_like(one)
    n = 8192 if device == "cuda" else 64
    left, right = (
        torch.randn(n, n, device=device).to(torch.bfloat16) for _ in range(2)
    )
    taken = interleaved(
        {
            "copy": [lambda: two.copy_(one)],
            "matmul": [lambda: left @ right],
        },
        device,
    )
    copied = 2 * one.numel() * one.element_size()
    return {
        "copy_TB_per_s": copied / middle(taken["copy"])[0] / 1e12,
        "bf16_matmul_tflops": 2 * n**3 / middle(taken["matmul"])[0] / 1e12,
    }
