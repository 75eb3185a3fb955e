"""What a machine can do at most: operations or bytes, whichever runs out.

Source: Williams, Waterman and Patterson (2009),
    https://doi.org/10.1145/1498765.1498785
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from attnbook.profiling.sizes import Count
from attnbook.profiling.timing import time_calls


@dataclass(frozen=True)
class Machine:
    """The two ceilings of a roofline model.

    Attributes:
        flops: operations a second.
        bandwidth: bytes a second, to and from memory.
    """

    flops: float
    bandwidth: float

    def __post_init__(self):
        if not (self.flops > 0 and self.bandwidth > 0):
            raise ValueError(
                f"a machine does {self.flops} operations and moves "
                f"{self.bandwidth} bytes a second; both must be above 0"
            )

    @property
    def ridge_point(self) -> float:
        """Return the ridge point: from this intensity on, operations limit."""
        return self.flops / self.bandwidth

    def attainable_rate(self, intensity: int | float) -> float:
        """Return the operations a second that an intensity allows."""
        return min(self.flops, self.bandwidth * intensity)

    def seconds(self, count: Count) -> float:
        """Return the least time for a count in one piece."""
        return max(count.flops / self.flops, count.bytes / self.bandwidth)

    def find_bottleneck(self, count: Count) -> str:
        """Return what limits a count: "memory" or "arithmetic"."""
        return "memory" if count.intensity < self.ridge_point else "arithmetic"


def bound_seconds(machine: Machine, counts: Iterable[Count]) -> float:
    """Return the least time for steps that run one after the other."""
    return sum(machine.seconds(count) for count in counts)


def measure_copy_rate(
    megabytes: int = 32, rounds: int = 25, device: str = "cpu"
) -> float:
    """Return the bytes a second of a copy, read and written ones together.

    Choose more megabytes than the cache holds.
    """
    source = torch.ones(megabytes * 250_000, device=device)
    target = torch.empty_like(source)
    taken = time_calls({"copy": lambda: target.copy_(source)}, rounds, device)
    return 2 * source.nbytes / min(taken["copy"])


def measure_product_rate(
    width: int = 512,
    rounds: int = 25,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> float:
    """Return the operations a second of a square matrix product.

    The numbers are random: zeros can run faster.
    """
    rng = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, width, width, generator=rng).to(device, dtype)
    taken = time_calls({"product": lambda: a @ b}, rounds, device)
    return 2 * width**3 / min(taken["product"])


def measure_machine(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Machine:
    """Return this machine's ceilings, by a product and a copy."""
    rate = measure_product_rate(dtype=dtype, device=device)
    return Machine(rate, measure_copy_rate(device=device))
