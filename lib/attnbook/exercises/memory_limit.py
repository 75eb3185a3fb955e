"""A limit on the tensors that a learner's call holds in memory, in bytes.

What is counted are the tensors that PyTorch's operations hand out and that are
still held; what an operation uses inside itself is not seen, nor is NumPy's.
"""

from collections.abc import Iterable

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode


class MemoryLimit(TorchDispatchMode):
    """Raises MemoryError when the tensors of a call exceed a limit.

    Args:
        limit: bytes that the call may hold at once.
        given: its inputs; they and their views do not count.
    """

    def __init__(self, limit: int, given: Iterable = ()):
        super().__init__()
        self.limit, self.now = limit, 0
        self.held: dict[int, tuple[StorageWeakRef, int]] = {}
        for x in given:
            self.note(x, counted=False)

    def note(self, found: object, counted: bool = True) -> None:
        """Record the storage of a tensor, if it is new."""
        if isinstance(found, Tensor):
            storage = found.untyped_storage()
            reference = StorageWeakRef(storage)
            if reference.cdata not in self.held:
                size = storage.nbytes() if counted else 0
                self.held[reference.cdata] = reference, size
                self.now += size

    def sweep(self) -> None:
        """Remove the storages that no longer exist."""
        for key in [k for k, (x, _) in self.held.items() if x.expired()]:
            self.now -= self.held.pop(key)[1]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Pass a call on, and count what is held after it.

        Raises:
            MemoryError: if the limit is exceeded.
        """
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, tuple | list) else [result]:
            self.note(x)
        if self.now > self.limit:
            self.sweep()
        if self.now > self.limit:
            raise MemoryError(
                f"{self.now:,} bytes of tensors are in memory at once, and "
                f"{self.limit:,} are allowed"
            )
        return result
