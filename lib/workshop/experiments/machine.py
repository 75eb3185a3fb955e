"""This machine: turns on its cores, and the device that `--device` named.

A run that uses one thread takes one of as many places as there are cores; a
benchmark takes them all. Two PyTorch jobs that want the same cores can slow
each other a hundredfold, and a timing taken beside another job is no timing.

Training runs, and what else gives the same results everywhere up to rounding,
accept a GPU. Runs that measure time or memory are about this machine's
processor, and always use it.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path

import torch
from filelock import AcquireReturnProxy, FileLock, Timeout

LOCKS = Path(tempfile.gettempdir()) / "attnbook-cores"


@contextmanager
def hold_cores(threads: int = 1, folder: Path | None = None) -> Iterator[None]:
    """Wait for `threads` places on this machine, and hold them.

    The locks are in `folder`, `LOCKS` unless told.

    Raises:
        ValueError: if more places are asked for than there are cores.
    """
    cores = os.cpu_count() or 1
    if not 1 <= threads <= cores:
        raise ValueError(f"{threads} threads asked for, but {cores} cores here")
    folder = folder or LOCKS
    folder.mkdir(exist_ok=True)
    with ExitStack() as held:
        # One waits at a time: two that each hold half would wait for ever.
        with FileLock(folder / "gate"):
            for _ in range(threads):
                held.enter_context(acquire_core(cores, folder))
        yield


def acquire_core(cores: int, folder: Path) -> AcquireReturnProxy:
    """Return a place that was free, taken; leaving its block gives it back."""
    while True:
        for i in range(cores):
            lock = FileLock(folder / f"place{i}", is_singleton=False)
            try:
                return lock.acquire(timeout=0)
            except Timeout:
                continue
        time.sleep(0.2)


CPU = torch.device("cpu")
CHOSEN: ContextVar[torch.device] = ContextVar("device", default=CPU)


def get_device() -> torch.device:
    """Return the device of the run that is being recorded; else the CPU."""
    return CHOSEN.get()


@contextmanager
def use_device(device: torch.device) -> Iterator[None]:
    """Record runs on a device."""
    before = CHOSEN.set(device)
    try:
        yield
    finally:
        CHOSEN.reset(before)


def parse_device(text: str) -> torch.device:
    """Return the device of this name.

    Raises:
        ValueError: if there is no such device on this machine.
    """
    try:
        device = torch.device(text)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"{text!r} is not a device that runs are recorded on; write cpu, "
            "cuda, or cuda:0 for the first GPU"
        )
    if device.type == "cpu":
        return CPU
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise ValueError(
            f"{text!r} was requested, but PyTorch {torch.__version__} finds no "
            "NVIDIA GPU on this machine; leave out --device to use the CPU"
        )
    if (device.index or 0) >= count:
        raise ValueError(
            f"{text!r} was requested, but the last of this machine's {count} "
            f"GPUs is cuda:{count - 1}"
        )
    return torch.device("cuda", device.index or 0)


def describe_device(device: torch.device, processor: str) -> str:
    """Return what a record says about the device that it was made on."""
    beside = f"{processor}, {torch.get_num_threads()} thread"
    if device.type == "cpu":
        return beside
    return f"{torch.cuda.get_device_name(device)} ({device}), {beside}"
