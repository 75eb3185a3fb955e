"""What surrounds a call of a learner's function: seeds, modes, a look-out.

Chapter: all of them
Source: none
Axes: none
"""

import contextlib
import random
import sys
from collections.abc import Iterator

import torch
from torch.overrides import TorchFunctionMode


@contextlib.contextmanager
def untouched() -> Iterator[None]:
    """Leave seeds, default dtype and gradient mode as they were found."""
    numpy = sys.modules.get("numpy")
    state = random.getstate()
    drawn = numpy.random.get_state() if numpy else None
    dtype = torch.get_default_dtype()
    try:
        with (
            torch.random.fork_rng(),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            torch.set_default_dtype(torch.float32)
            yield
    finally:
        torch.set_default_dtype(dtype)
        random.setstate(state)
        if numpy:
            numpy.random.set_state(drawn)


def plant(seed: int) -> None:
    """Set every global seed that a learner's function might read."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)


class Guard(TorchFunctionMode):
    """Notes the calls of torch functions that an exercise does not allow."""

    def __init__(self, forbidden: frozenset[str]):
        super().__init__()
        self.forbidden, self.used = forbidden, []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Pass a call on, and note it if its name is forbidden."""
        name = getattr(func, "__name__", "").lstrip("_").partition(".")[0]
        if name in self.forbidden and name not in self.used:
            self.used.append(name)
        return func(*args, **(kwargs or {}))
