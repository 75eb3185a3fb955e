"""Plans: the bytes that each way to divide attention sends, the work, the memory.

Bytes are those that each rank sends in one layer. P has to divide the length and,
where heads are divided, the heads; else ValueError. Time is predicted as a latency
for each message and a time for each byte.

Source: a latency and a time for each byte: Hockney (1994),
    https://doi.org/10.1016/S0167-8191(06)80021-9; sizes of models: Llama Team
    (2024), table 3, https://arxiv.org/abs/2407.21783
Axes: those of `Sizes`: B batch, H heads, G groups (key-value heads), T queries,
    S keys, D width of query and key, E of values; P ranks
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

import torch

from attnbook.parallel.groups import Group
from attnbook.parallel.heads import divide_heads
from attnbook.parallel.ring import Layout, count_scores
from attnbook.profiling.sizes import Sizes


class Traffic(NamedTuple):
    """What one rank sends in a layer: messages forwards, and bytes both ways."""

    messages: int
    forward: int
    backward: int


def count_key_numbers(sizes: Sizes, ranks: int) -> int:
    """Return how many numbers one rank's keys and values have, or raise ValueError."""
    if sizes.T % ranks or sizes.S % ranks:
        raise ValueError(
            f"{sizes.T} queries and {sizes.S} keys do not divide over {ranks} ranks"
        )
    return sizes.B * sizes.G * sizes.S // ranks * (sizes.D + sizes.E)


def count_ring_traffic(sizes: Sizes, ranks: int) -> Traffic:
    """Return what `ring_attention` sends: keys, and in float32 their gradients."""
    numbers = count_key_numbers(sizes, ranks)
    keys = (ranks - 1) * numbers * sizes.itemsize
    gradients = ranks * numbers * max(sizes.itemsize, 4) if ranks > 1 else 0
    return Traffic(ranks - 1, keys, keys + gradients)


def count_all_to_all_traffic(sizes: Sizes, ranks: int) -> Traffic:
    """Return what `all_to_all_attention` sends; there are P key heads at least."""
    divide_heads(sizes.H, sizes.G, ranks)
    keys = count_key_numbers(replace(sizes, G=max(sizes.G, ranks)), ranks)
    queries = sizes.B * sizes.H * sizes.T // ranks * (sizes.D + sizes.E)
    sent = (queries + keys) * (ranks - 1) // ranks * sizes.itemsize
    return Traffic(4 * (ranks - 1), sent, sent)


def count_grid_traffic(sizes: Sizes, ring: int, columns: int) -> Traffic:
    """Return what `grid_attention` sends in its row and in its column."""
    count_key_numbers(sizes, ring * columns)
    inner = replace(sizes, T=sizes.T // ring, S=sizes.S // ring)
    row = count_all_to_all_traffic(inner, columns)
    groups = max(sizes.G, columns) // columns
    column = count_ring_traffic(replace(sizes, H=sizes.H // columns, G=groups), ring)
    return Traffic(*(a + b for a, b in zip(row, column, strict=True)))


def count_gather_traffic(sizes: Sizes, ranks: int) -> Traffic:
    """Return what `gather_attention` sends: keys, and their gradients."""
    sent = (ranks - 1) * count_key_numbers(sizes, ranks) * sizes.itemsize
    return Traffic(ranks - 1, sent, sent)


def count_heads_traffic(sizes: Sizes, ranks: int) -> Traffic:
    """Return what `TensorParallelAttention` sends: one all-reduce each way.

    Its model is H · D wide. Gradients on copies of key heads are not included.
    """
    divide_heads(sizes.H, sizes.G, ranks)
    reduced = 2 * (ranks - 1) * sizes.query // ranks
    return Traffic(2 * (ranks - 1), reduced, reduced)


def count_decoding_traffic(sizes: Sizes, ranks: int) -> Traffic:
    """Return what `decode_divided` sends for T new tokens, whatever S is."""
    numbers = sizes.B * sizes.H * sizes.T * (sizes.E + 1)
    return Traffic(ranks - 1, (ranks - 1) * numbers * max(sizes.itemsize, 4), 0)


def count_state_traffic(sizes: Sizes, ranks: int) -> Traffic:
    """Return what `attend_linear_divided` sends, with features as wide as keys."""
    numbers = sizes.B * sizes.H * sizes.D * (sizes.E + 1)
    sent = (ranks - 1) * numbers * max(sizes.itemsize, 4)
    return Traffic(ranks - 1, sent, sent)


PLANS: dict[str, Callable[[Sizes, int], Traffic]] = {
    "ring": count_ring_traffic,
    "all-to-all": count_all_to_all_traffic,
    "gathered keys": count_gather_traffic,
    "heads": count_heads_traffic,
}


def compare_plans(sizes: Sizes, ranks: int) -> dict[str, Traffic | str]:
    """Return each plan's traffic, or the sentence that says why it is impossible."""
    found: dict[str, Traffic | str] = {}
    for name, count in PLANS.items():
        try:
            found[name] = count(sizes, ranks)
        except ValueError as error:
            found[name] = str(error)
    return found


class Balance(NamedTuple):
    """How evenly a ring's work is divided, in units of its mean over the ranks."""

    shares: list[float]  # each rank's scores
    waiting: float  # time of the ring, whose steps take as long as their busiest rank


def describe_balance(layout: Layout, causal: bool = True) -> Balance:
    """Return how evenly a layout divides the scores of a ring."""
    counts = count_scores(layout, causal).double()
    mean = counts.sum() / len(layout)
    waiting = counts.amax(dim=0).sum() / mean
    return Balance((counts.sum(dim=1) / mean).tolist(), float(waiting))


class Link(NamedTuple):
    """The time of messages: a latency in seconds, and seconds for each byte."""

    latency: float
    seconds_per_byte: float

    def predict(self, messages: int, sent: int) -> float:
        """Return the seconds of messages one after another, of so many bytes."""
        return messages * self.latency + sent * self.seconds_per_byte


def fit_link(sent: Sequence[int], seconds: Sequence[float]) -> Link:
    """Return the link that fits messages best, by relative error, or ValueError."""
    if len(sent) != len(seconds) or len({*sent}) < 2:
        raise ValueError(
            f"a line needs two sizes of messages and a time for each, not "
            f"{len({*sent})} sizes and {len(seconds)} times"
        )
    times = torch.tensor(seconds, dtype=torch.float64)
    columns = torch.stack([torch.ones_like(times), torch.tensor(sent).double()], 1)
    columns = columns / times[:, None]  # relative to what is to be 1
    scale = columns.amax(dim=0)  # so that both columns have like sizes
    found = torch.linalg.lstsq(columns / scale, torch.ones(len(times), 1).double())
    return Link(*(found.solution[:, 0].clamp(min=0) / scale).tolist())


def measure_shifts(
    group: Group, sizes: Sequence[int], repeats: int = 20
) -> list[float]:
    """Return the median seconds of a shift of so many bytes, on the slowest rank."""
    own = []
    for size in sizes:
        x, times = torch.zeros(size, dtype=torch.uint8), []
        for _ in range(repeats + 1):
            group.gather_objects(None)  # so that all ranks begin together
            begun = time.perf_counter()
            group.shift(x)
            times.append(time.perf_counter() - begun)
        own.append(median(times[1:]))  # the first one opens connections
    return [max(times) for times in zip(*group.gather_objects(own), strict=True)]


class ModelSize(NamedTuple):
    """The sizes of a decoder like Llama's, and its bytes."""

    parameters: int  # as published
    layers: int
    groups: int
    width: int  # of a head
    model: int  # width of the residual stream
    itemsize: int = 2  # bytes of a number

    @property
    def weights(self) -> int:
        """Return the bytes of the weights."""
        return self.parameters * self.itemsize

    def cache(self, tokens: int) -> int:
        """Return the bytes of the keys and values of so many tokens."""
        return 2 * self.layers * self.groups * self.width * tokens * self.itemsize

    def activations(self, tokens: int) -> int:
        """Return the bytes of the blocks' inputs, if all else is recomputed."""
        return self.layers * self.model * tokens * self.itemsize


LLAMA_8B = ModelSize(8_030_261_248, layers=32, groups=8, width=128, model=4096)
LLAMA_70B = ModelSize(70_553_706_496, layers=80, groups=8, width=128, model=8192)
