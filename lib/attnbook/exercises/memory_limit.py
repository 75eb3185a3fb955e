"""A limit on what a learner's call holds in memory, in bytes.

Two things are counted. Tensors: those that PyTorch's operations hand out and
that are still held; what an operation uses inside itself is not seen. And, if
asked for, what Python allocates, NumPy's arrays and lists of numbers included.
"""

import tracemalloc

import torch

from attnbook.profiling.allocations import PeakMeter

SLACK = 2**17  # bytes of objects that any call of Python's makes


class MemoryLimit(PeakMeter):
    """Raises MemoryError when a call holds more than a limit.

    The inputs of the call and their views do not count.

    Args:
        limit: bytes that the call may hold at once.
        count_arrays: whether what Python allocates counts, too.
    """

    def __init__(self, limit: int, count_arrays: bool = False):
        super().__init__()
        self.limit, self.count_arrays = limit, count_arrays
        self.tracing, self.before = False, 0

    def __enter__(self):
        if not self.count_arrays:
            return super().__enter__()
        self.tracing = tracemalloc.is_tracing()
        if not self.tracing:
            with PeakMeter():  # the first one imports much of PyTorch
                torch.ones(1).neg()
            tracemalloc.start()
        tracemalloc.reset_peak()
        self.before = tracemalloc.get_traced_memory()[0]
        return super().__enter__()

    def __exit__(self, *raised):
        if not self.count_arrays:
            super().__exit__(*raised)
            return
        most = tracemalloc.get_traced_memory()[1] - self.before
        if not self.tracing:
            tracemalloc.stop()
        super().__exit__(*raised)
        if raised[0] is None and most > self.limit + SLACK:
            raise self.make_error(most, "arrays and lists")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Pass a call on, and count what is held after it.

        Raises:
            MemoryError: if the limit is exceeded.
        """
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if self.peak_bytes > self.limit:
            raise self.make_error(self.peak_bytes, "tensors")
        return result

    def make_error(self, most: int, what: str) -> MemoryError:
        """Return the error that names what is held, and the limit."""
        return MemoryError(
            f"{most:,} bytes of {what} are in memory at once, and "
            f"{self.limit:,} are allowed"
        )
