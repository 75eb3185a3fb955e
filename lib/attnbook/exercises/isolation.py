"""What surrounds a call of an answer: neutral settings, and no ready-made code."""

import contextlib
import inspect
import random
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from types import CodeType, FunctionType

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

# Settings that are the same in every check: how to ask, how to set, what to.
NEUTRAL: tuple[tuple[Callable, Callable, object], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        "highest",
    ),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, False),
)
# Settings that a check only puts back if an answer changes them.
KEPT: tuple[tuple[Callable, Callable], ...] = (
    (torch.get_default_device, torch.set_default_device),
    (torch.get_num_threads, torch.set_num_threads),
)

# Settings and the code of functions are shared by all threads.
one_at_a_time = threading.RLock()


@contextlib.contextmanager
def neutral_settings() -> Iterator[None]:
    """Run under settings of our own, and leave everything as it was found.

    Seeds, default type and device, gradient mode, autocast, threads and flags of
    the learner's notebook change no verdict, and no check changes them.
    """
    with one_at_a_time, contextlib.ExitStack() as entered:
        numpy = sys.modules.get("numpy")
        if numpy:
            entered.callback(numpy.random.set_state, numpy.random.get_state())
            entered.enter_context(numpy.errstate(all="ignore"))
        entered.callback(random.setstate, random.getstate())
        for ask, put in KEPT:
            entered.callback(restore, ask, put, ask())
        for ask, put, value in NEUTRAL:
            entered.callback(restore, ask, put, ask())
            restore(ask, put, value)
        entered.callback(
            torch.use_deterministic_algorithms,
            torch.are_deterministic_algorithms_enabled(),
            warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        torch.use_deterministic_algorithms(False)
        entered.enter_context(torch.random.fork_rng(devices=()))
        entered.enter_context(torch.inference_mode(False))
        entered.enter_context(torch.enable_grad())
        entered.enter_context(torch.autocast("cpu", enabled=False))
        if torch.get_default_device() != torch.device("cpu"):
            entered.enter_context(torch.device("cpu"))
        entered.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield


def restore(ask: Callable, put: Callable, value: object) -> None:
    """Set a setting, unless it has that value."""
    if ask() != value:
        put(value)


def seed_everything(seed: int) -> None:
    """Set every global seed that an answer might read."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)


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
        self.functions = list(find_functions(functions))
        flex = sys.modules.get("torch.nn.attention.flex_attention")
        if flex and "flex_attention" in names:
            self.functions += find_functions([flex.flex_attention])
        self.codes: list[CodeType] = []
        self.allowed: set[Callable] = set()
        self.outer: Guard | None = None

    def __enter__(self):
        self.outer, Guard.active = Guard.active, self
        self.codes = [x.__code__ for x in self.functions]
        refusal = inspect.unwrap(raise_ready_made).__code__
        for function in self.functions:
            function.__code__ = refusal.replace(co_name=function.__name__)
        return super().__enter__()

    def __exit__(self, *raised):
        super().__exit__(*raised)
        for function, code in zip(self.functions, self.codes, strict=True):
            function.__code__ = code
        Guard.active = self.outer

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Pass a call on, unless its name is forbidden."""
        if func not in self.allowed:
            name = getattr(func, "__name__", "").lstrip("_").partition(".")[0]
            if name.removeprefix("special_") in self.names:
                self.refuse(name)
            self.allowed.add(func)
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
