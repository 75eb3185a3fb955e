"""Where recorded runs compute: the device that `--device` named.

Training runs, and what else gives the same results everywhere up to rounding,
accept a GPU. Runs that measure time or memory are about this machine's
processor, and always use it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

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
