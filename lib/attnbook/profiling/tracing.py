"""Operations and moved bytes of any call, recorded as PyTorch runs it.

Every operation that reaches PyTorch's kernels is taken to read its inputs and
to write its results once. Views move nothing. Works on the device "meta" too:
sizes without numbers, at any length.

Source: PyTorch's `FlopCounterMode`, which counts the operations of products;
    the bytes are our own work
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from attnbook.profiling.allocations import collect_tensors, get_storage_key
from attnbook.profiling.sizes import Count

ALLOCATE_ONLY = {"empty", "empty_like", "empty_strided", "new_empty"}


def count_moved_bytes(x: Tensor) -> int:
    """Return the bytes of a tensor's own numbers; a broadcast axis is one."""
    sizes = (n for n, step in zip(x.shape, x.stride(), strict=True) if step or n == 0)
    count = 1
    for n in sizes:
        count *= n
    return count * x.element_size()


class TrafficMeter(TorchDispatchMode):
    """Records the bytes that operations read and write inside `with`.

    Attributes:
        steps: the name of each operation, and its bytes.
    """

    def __init__(self):
        super().__init__()
        self.steps: list[tuple[str, Count]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run an operation, and record what it moved."""
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        taken, given = collect_tensors((args, kwargs)), collect_tensors(made)
        name = func._schema.name.partition("::")[2]
        known = {get_storage_key(x) for x in taken}
        view = all(get_storage_key(x) in known for x in given)
        if (view and not func._schema.is_mutable) or name in ALLOCATE_ONLY:
            return made
        read, written = (sum(map(count_moved_bytes, x)) for x in (taken, given))
        self.steps.append((name, Count(0, read, written)))
        return made


def trace_call(call: Callable[[], object]) -> Count:
    """Return the operations of a call's products, and the bytes it moves."""
    flops, traffic = FlopCounterMode(display=False), TrafficMeter()
    with flops, traffic:
        call()
    moves = [count for _, count in traffic.steps]
    return sum(moves, Count(flops.get_total_flops()))


def make_meta_tensor(*shape: int, dtype: torch.dtype = torch.float32, **more) -> Tensor:
    """Return a tensor with a shape and without numbers."""
    return torch.empty(*shape, dtype=dtype, device="meta", **more)
