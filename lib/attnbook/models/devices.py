"""Devices: where a model is, and random numbers that can be repeated there.

Tensors are made on the device of the inputs, or of the model's parameters.
Random inputs are drawn by a generator on the CPU and then moved, so that one
seed gives the same numbers on every device. Dropout draws from the generator of
the device itself: one seed gives the same numbers on one kind of device.

Source: PyTorch's notes on reproducibility,
    https://docs.pytorch.org/docs/stable/notes/randomness.html
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor, nn


def choose_device() -> torch.device:
    """Return the first NVIDIA GPU if there is one, and the CPU otherwise."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def find_device(model: nn.Module) -> torch.device:
    """Return the device of the parameters, or else the buffers, or else the CPU."""
    for tensor in chain(model.parameters(), model.buffers()):
        return tensor.device
    return torch.device("cpu")


@contextmanager
def use_seed(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed the global generators, and restore the CPU's and a GPU's afterwards."""
    devices = [device] if device and device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def sample_columns(probabilities: Tensor, rng: torch.Generator | None = None) -> Tensor:
    """Sample one column for each row (B, V), on the generator's device and back."""
    device = probabilities.device if rng is None else rng.device
    drawn = torch.multinomial(probabilities.to(device), 1, generator=rng)
    return drawn.to(probabilities.device)
