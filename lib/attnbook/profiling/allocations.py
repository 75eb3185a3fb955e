"""How much memory a call takes: at its peak, and saved for the backward pass.

Source: PyTorch's profiler, https://docs.pytorch.org/docs/stable/profiler.html,
    and its hooks on saved tensors,
    https://docs.pytorch.org/docs/stable/autograd.html
"""

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.profiler import ProfilerActivity, profile


def storage_key(x: Tensor) -> StorageWeakRef:
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
    known = {storage_key(x) for x in besides}
    stores: dict[StorageWeakRef, int] = {}

    def note(x: Tensor) -> Tensor:
        if storage_key(x) not in known:
            stores[storage_key(x)] = x.untyped_storage().nbytes()
        return x

    with saved_tensors_hooks(note, lambda x: x):
        held = call()
    del held
    return sum(stores.values())


def measure_peak_bytes(call: Callable[[], object]) -> int:
    """Return the most bytes of tensors that a call holds at once.

    Tensors made before the call do not count; what it returns does.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        result = call()
    del result
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        run.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    steps = [
        (e["ts"], e["args"]["Bytes"]) for e in events if e["name"] == "[memory]"
    ]
    held = most = 0
    for _, change in sorted(steps, key=lambda step: step[0]):
        held += change
        most = max(most, held)
    return most
