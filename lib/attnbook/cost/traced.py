"""Operations, bytes and memory of any call, noted as PyTorch runs it.

Every operation that reaches PyTorch's kernels is taken to read its inputs and
to write its results once. Views move nothing. Works on the device "meta" too:
sizes without numbers, at any length.

Chapter: chapters/10_cost
Source: PyTorch's `FlopCounterMode`, which counts the operations of products;
    the bytes are our own work
Axes: none
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from attnbook.allocations import store
from attnbook.cost.sizes import Count

MAKES_NOTHING = {"empty", "empty_like", "empty_strided", "new_empty"}


def moved(x: Tensor) -> int:
    """Return the bytes of a tensor's own numbers; a broadcast axis is one."""
    sizes = (
        n for n, step in zip(x.shape, x.stride(), strict=True) if step or n == 0
    )
    count = 1
    for n in sizes:
        count *= n
    return count * x.element_size()


def tensors(values: object) -> list[Tensor]:
    """Return the tensors among nested arguments."""
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]


class Traffic(TorchDispatchMode):
    """Notes the bytes that operations read and write while it is entered.

    Attributes:
        steps: the name of each operation, and its bytes.
    """

    def __init__(self):
        super().__init__()
        self.steps: list[tuple[str, Count]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run an operation, and note what it moved."""
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        taken, given = tensors((args, kwargs)), tensors(made)
        name = func._schema.name.partition("::")[2]
        known = {store(x) for x in taken}
        view = all(store(x) in known for x in given)
        if (view and not func._schema.is_mutable) or name in MAKES_NOTHING:
            return made
        read, written = (sum(map(moved, x)) for x in (taken, given))
        self.steps.append((name, Count(0, read, written)))
        return made


class Held(TorchDispatchMode):
    """Notes how much memory operations hold while it is entered.

    Attributes:
        most: the most bytes held at once, of what was made meanwhile.
    """

    def __init__(self):
        super().__init__()
        self.most = 0
        self.held: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run an operation, and note what is there after it."""
        kwargs = kwargs or {}
        self.held = {x: n for x, n in self.held.items() if not x.expired()}
        known = {store(x) for x in tensors((args, kwargs))}
        made = func(*args, **kwargs)
        for x in tensors(made):
            if store(x) not in known:
                self.held[store(x)] = x.untyped_storage().nbytes()
        self.most = max(self.most, sum(self.held.values()))
        return made


def held(call: Callable[[], object]) -> int:
    """Return the most bytes of tensors that a call holds at once.

    Like `attnbook.allocations.peak`, which asks the allocator, and so sees
    what an operation needs inside as well; this one needs no numbers.
    """
    watch = Held()
    with watch:
        call()
    return watch.most


def traced(call: Callable[[], object]) -> Count:
    """Return the operations of a call's products, and the bytes it moves."""
    flops, traffic = FlopCounterMode(display=False), Traffic()
    with flops, traffic:
        call()
    moves = [count for _, count in traffic.steps]
    return sum(moves, Count(flops.get_total_flops()))


def meta(*shape: int, dtype: torch.dtype = torch.float32, **more) -> Tensor:
    """Return a tensor with a shape and without numbers."""
    return torch.empty(*shape, dtype=dtype, device="meta", **more)
