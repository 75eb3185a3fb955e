"""What a call does: its peak memory, what autograd saves, bytes and operations.

For bytes moved, every operation that reaches PyTorch's kernels is taken to read
its inputs and to write its results once; views move nothing. All of it works on
the device "meta" too: sizes without numbers, at any length.

Source: PyTorch's profiler, https://docs.pytorch.org/docs/stable/profiler.html,
    its hooks on saved tensors,
    https://docs.pytorch.org/docs/stable/autograd.html, its `FlopCounterMode`;
    on a GPU its statistics,
    https://docs.pytorch.org/docs/stable/notes/cuda.html
"""

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from attnbook.profiling.sizes import Count


def collect_tensors(values: object) -> list[Tensor]:
    """Return the tensors in nested tuples, lists and dictionaries, in order.

    `torch.utils._pytree` takes longer than the operations whose arguments it
    would search.
    """
    found: list[Tensor] = []
    rest = [values]
    while rest:
        x = rest.pop()
        if isinstance(x, Tensor):
            found.append(x)
        elif isinstance(x, tuple | list):
            rest.extend(reversed(x))
        elif isinstance(x, dict):
            rest.extend(reversed(x.values()))
    return found


def get_storage_key(x: Tensor) -> StorageWeakRef:
    """Return a name for the memory behind a tensor; views of it share it."""
    return StorageWeakRef(x.untyped_storage())


def count_saved_bytes(
    call: Callable[[], object], besides: Sequence[Tensor] = ()
) -> int:
    """Return the bytes that autograd saves during a call for the backward pass.

    Views are counted once, with all of the memory behind them. Works on the
    device "meta" too, where tensors have sizes and no numbers.

    Args:
        call: returns something that has a gradient.
        besides: tensors that exist anyway and do not count.
    """
    known = {get_storage_key(x) for x in besides}
    stores: dict[StorageWeakRef, int] = {}

    def note(x: Tensor) -> Tensor:
        if get_storage_key(x) not in known:
            stores[get_storage_key(x)] = x.untyped_storage().nbytes()
        return x

    with saved_tensors_hooks(note, lambda x: x):
        held = call()
    del held
    return sum(stores.values())


class PeakMeter(TorchDispatchMode):
    """Records how much memory operations hold inside `with`.

    Attributes:
        peak_bytes: the most bytes held at once, of tensors made inside.
    """

    def __init__(self):
        super().__init__()
        self.peak_bytes = 0
        # By the address of the memory: weak references keep it from being used
        # again. Memory that was freed is removed only where the sum with it
        # would be a new peak, because looking for it takes most of the time.
        self.held: dict[int, tuple[StorageWeakRef, int]] = {}
        self.held_bytes = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Leave PyTorch's compiler out, whose import takes a second."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run an operation, and record which tensors exist after it."""
        made = func(*args, **(kwargs or {}))
        stores = [x.untyped_storage() for x in collect_tensors(made)]
        new = {x._cdata: x for x in stores if x._cdata not in self.held}
        if new:
            for x in collect_tensors((args, kwargs)):
                new.pop(x.untyped_storage()._cdata, None)
            for address, store in new.items():
                self.held[address] = StorageWeakRef(store), store.nbytes()
                self.held_bytes += store.nbytes()
            if self.held_bytes > self.peak_bytes:
                self._remove_freed()
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)
        return made

    def _remove_freed(self) -> None:
        """Count no longer what was freed."""
        self.held = {k: x for k, x in self.held.items() if not x[0].expired()}
        self.held_bytes = sum(size for _, size in self.held.values())


def measure_peak_bytes(call: Callable[[], object], device: str = "cpu") -> int:
    """Return the most bytes of tensors that a call holds at once.

    Tensors made before the call do not count; what it returns does. On "cpu"
    and "cuda" the allocator is asked, so that what an operation needs
    internally is included. On "meta", where tensors have no numbers, the
    tensors that exist after each operation are added up.

    Args:
        call: what is measured.
        device: where its tensors are: "cpu", "cuda" or "meta".
    """
    if device == "meta":
        with PeakMeter() as meter:
            call()
        return meter.peak_bytes
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        result = call()
    del result
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        run.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    steps = [(e["ts"], e["args"]["Bytes"]) for e in events if e["name"] == "[memory]"]
    held = most = 0
    for _, change in sorted(steps, key=lambda step: step[0]):
        held += change
        most = max(most, held)
    return most


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
