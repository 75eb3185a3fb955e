"""A limit on the tensors that a learner's call holds in memory, in bytes.

What is counted are the tensors that PyTorch's operations hand out and that are
still held; what an operation uses inside itself is not seen, nor is NumPy's.
"""

from attnbook.profiling.allocations import PeakMeter


class MemoryLimit(PeakMeter):
    """Raises MemoryError when the tensors of a call exceed a limit.

    The inputs of the call and their views do not count.

    Args:
        limit: bytes that the call may hold at once.
    """

    def __init__(self, limit: int):
        super().__init__()
        self.limit = limit

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Pass a call on, and count what is held after it.

        Raises:
            MemoryError: if the limit is exceeded.
        """
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if self.peak_bytes > self.limit:
            raise MemoryError(
                f"{self.peak_bytes:,} bytes of tensors are in memory at once, "
                f"and {self.limit:,} are allowed"
            )
        return result
