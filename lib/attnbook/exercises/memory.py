"""A limit on what a learner's call holds at once, in bytes of tensors.

What is counted are the tensors that PyTorch's operations hand out and that are
still held; what an operation uses inside itself is not seen, nor is NumPy's.

Chapter: all of them
Source: none
Axes: none
"""

from collections.abc import Iterable

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode


class Room(TorchDispatchMode):
    """Raises MemoryError when a call holds more than fits.

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
        """Take down the storage of a tensor, if it is new."""
        if isinstance(found, Tensor):
            storage = found.untyped_storage()
            reference = StorageWeakRef(storage)
            if reference.cdata not in self.held:
                size = storage.nbytes() if counted else 0
                self.held[reference.cdata] = reference, size
                self.now += size

    def sweep(self) -> None:
        """Forget what is no longer held."""
        for key in [k for k, (x, _) in self.held.items() if x.expired()]:
            self.now -= self.held.pop(key)[1]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Pass a call on, and count what is held after it.

        Raises:
            MemoryError: if that is more than fits.
        """
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, tuple | list) else [result]:
            self.note(x)
        if self.now > self.limit:
            self.sweep()
        if self.now > self.limit:
            raise MemoryError(
                f"{self.now:,} bytes of tensors are held at once, and "
                f"{self.limit:,} are allowed"
            )
        return result
