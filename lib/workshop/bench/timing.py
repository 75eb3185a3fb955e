"""How long a call takes: interleaved rounds in random order, a cold cache.

Source: CUDA graphs, https://docs.pytorch.org/docs/stable/notes/cuda.html
"""

import gc
import random
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle

import torch
from torch import Tensor

from attnbook.profiling.timing import measure_seconds

ROUNDS = 9
SECONDS = 0.01


def time_in_turn(calls: Sequence[Callable], times: int, device: str) -> float:
    """Return the time of one call: they are made in turn, so many times."""
    turn = cycle(calls)
    return measure_seconds(lambda: next(turn)(), times, device)


def choose_repeats(once: float) -> int:
    """Return how often a call is repeated in a round, by its time."""
    return max(2, min(200, round(SECONDS / max(once, 1e-6))))


def make_replay(calls: Sequence[Callable]) -> Callable:
    """Return a call that replays a CUDA graph of some calls, in turn.

    A replay launches all kernels at once, so that short ones are not timed by
    how fast Python asks for them. The current stream must not be the default.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        for call in calls:
            call()
    return graph.replay


def shuffle(names: Iterable[str], seed: str) -> list[str]:
    """Return names in a random order, the same for the same seed.

    Whatever runs after a cool implementation is faster than after a hot one;
    no implementation may always have the same neighbour.
    """
    order = list(names)
    random.Random(seed).shuffle(order)
    return order


def compute_median(values: Sequence[float]) -> tuple[float, float]:
    """Return the median, and the middle half's width as a share of it."""
    low, median, high = compute_quartiles(values)
    return median, (high - low) / median


def compute_quartiles(values: Sequence[float]) -> list[float]:
    """Return the three quartiles."""
    cuts = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    return torch.tensor(values, dtype=torch.float64).quantile(cuts).tolist()


def compare_pairs(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return quartiles of their time over ours, round by round.

    Both were timed within the same rounds, so that what a round does to both
    cancels; above 1 ours is faster.
    """
    pairs = zip(ours, theirs, strict=True)
    return compute_quartiles([b / a for a, b in pairs])


def count_copies(inputs: Sequence[Tensor], device: str) -> int:
    """Return how many sets of such inputs leave nothing in the L2 cache."""
    if device == "cpu":
        return 2
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    size = sum(x.numel() * x.element_size() for x in inputs)
    return max(2, min(16, -(-2 * cache // size)))


def release_memory() -> None:
    """Give back the GPU's memory of what is no longer referred to."""
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


def gpu_responds(device: str) -> bool:
    """Tell whether the GPU still answers; after some errors it never does."""
    if device == "cpu":
        return True
    try:
        torch.cuda.synchronize()
        return torch.ones(1, device=device).item() == 1
    except Exception:
        return False
