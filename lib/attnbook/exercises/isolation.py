"""What surrounds a call of an answer: neutral settings, and no ready-made code."""

import contextlib
import inspect
import random
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from types import FunctionType

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

# The torch functions that are an attention, ready made.
ATTENTION = frozenset(
    {
        "scaled_dot_product_attention",
        "scaled_dot_product_attention_math",
        "scaled_dot_product_flash_attention",
        "scaled_dot_product_flash_attention_for_cpu",
        "scaled_dot_product_efficient_attention",
        "multi_head_attention_forward",
        "native_multi_head_attention",
        "transformer_encoder_layer_fwd",
        "flex_attention",
    }
)

# PyTorch's settings: how to ask, how to set, and what to; None leaves a setting as
# it is, and only what an answer changes is put back.
SETTINGS: tuple[tuple[Callable, Callable, object], ...] = (
    (torch.get_default_device, torch.set_default_device, None),
    (torch.get_num_threads, torch.set_num_threads, None),
    (torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        "highest",
    ),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, False),
    (
        torch.get_deterministic_debug_mode,
        torch.set_deterministic_debug_mode,
        0,
    ),
)

# Settings and the code of functions are shared by all threads.
one_at_a_time = threading.RLock()


@contextlib.contextmanager
def neutral_settings() -> Iterator[None]:
    """Run under settings of our own, and leave everything as it was found."""
    with one_at_a_time, contextlib.ExitStack() as entered:
        entered.callback(np.random.set_state, np.random.get_state())
        entered.callback(random.setstate, random.getstate())
        for ask, put, value in SETTINGS:
            entered.callback(change, ask, put, ask())
            if value is not None:
                change(ask, put, value)
        entered.enter_context(torch.random.fork_rng(devices=()))
        entered.enter_context(torch.inference_mode(False))
        entered.enter_context(torch.enable_grad())
        entered.enter_context(torch.autocast("cpu", enabled=False))
        if torch.get_default_device() != torch.device("cpu"):
            entered.enter_context(torch.device("cpu"))
        entered.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield


def change(ask: Callable, put: Callable, value: object) -> None:
    """Set a setting, unless it has that value."""
    if ask() != value:
        put(value)


def seed_everything(seed: int) -> None:
    """Set every global seed that an answer might read."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


class ReadyMadeError(Exception):
    """An answer called a function that computes the whole answer."""


class Guard(TorchFunctionMode):
    """Refuses functions that an exercise does not allow, and notes their names.

    PyTorch's are known by their names. Python functions, such as the library's own
    answer, lose their code meanwhile: under whatever name an answer imported
    them, they raise.

    Args:
        names: of PyTorch's functions.
        functions: of Python.
    """

    active: "Guard | None" = None

    def __init__(self, names: Collection[str], functions: Iterable[Callable] = ()):
        super().__init__()
        self.names, self.used = names, list[str]()
        flex = sys.modules.get("torch.nn.attention.flex_attention")
        more = [flex.flex_attention] if flex and "flex_attention" in names else []
        self.codes = {x: x.__code__ for x in find_functions([*functions, *more])}

    def __enter__(self):
        Guard.active = self
        refusal = inspect.unwrap(raise_ready_made).__code__
        for function in self.codes:
            function.__code__ = refusal.replace(co_name=function.__name__)
        return super().__enter__()

    def __exit__(self, *raised):
        super().__exit__(*raised)
        for function, code in self.codes.items():
            function.__code__ = code
        Guard.active = None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Pass a call on, unless its name is forbidden."""
        name = getattr(func, "__name__", "").lstrip("_").partition(".")[0]
        if name.removeprefix("special_") in self.names:
            self.refuse(name)
        return func(*args, **(kwargs or {}))

    def refuse(self, name: str) -> None:
        """Note that a forbidden function was called, and raise."""
        self.used.append(name)
        raise ReadyMadeError(name)


def raise_ready_made(*given, **more):
    """Stand in for the code of a forbidden function, with any globals."""
    import sys

    from attnbook.exercises.isolation import Guard

    if Guard.active:
        Guard.active.refuse(sys._getframe().f_code.co_name)


def find_functions(given: Iterable[Callable]) -> Iterator[FunctionType]:
    """Yield the functions of Python behind some callables, without wrappers."""
    for one in given:
        function = inspect.unwrap(one)
        if isinstance(function, FunctionType) and not function.__code__.co_freevars:
            yield function
