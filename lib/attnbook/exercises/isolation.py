"""What surrounds a call of an answer: neutral settings, and no ready-made code."""

import contextlib
import random
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from types import FunctionType

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
NEUTRAL = (
    (torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        "highest",
    ),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, False),
)
# Settings that a check only puts back if an answer changes them.
KEPT = (
    (torch.get_default_device, torch.set_default_device),
    (torch.get_num_threads, torch.set_num_threads),
)

# A check replaces code of functions, which all threads share.
one_at_a_time = threading.RLock()


@contextlib.contextmanager
def neutral_settings() -> Iterator[None]:
    """Run under settings of our own, and leave everything as it was found.

    Seeds, default type and device, gradient mode, autocast, threads and flags of
    the learner's notebook change no verdict, and no check changes them.
    """
    numpy = sys.modules.get("numpy")
    drawn = random.getstate(), numpy.random.get_state() if numpy else None
    deterministic = torch.are_deterministic_algorithms_enabled()
    only_warn = torch.is_deterministic_algorithms_warn_only_enabled()
    found = [(put, ask()) for ask, put, _ in NEUTRAL]
    kept = [(ask, put, ask()) for ask, put in KEPT]
    try:
        with contextlib.ExitStack() as entered:
            entered.enter_context(one_at_a_time)
            entered.enter_context(torch.random.fork_rng(devices=()))
            entered.enter_context(torch.inference_mode(False))
            entered.enter_context(torch.enable_grad())
            entered.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            if numpy:
                entered.enter_context(numpy.errstate(all="ignore"))
            if torch.is_autocast_enabled("cpu"):
                entered.enter_context(torch.autocast("cpu", enabled=False))
            if torch.get_default_device() != torch.device("cpu"):
                entered.enter_context(torch.device("cpu"))
            for ask, put, value in NEUTRAL:
                if ask() != value:
                    put(value)
            if deterministic:
                torch.use_deterministic_algorithms(False)
            yield
    finally:
        for put, value in found:
            put(value)
        for ask, put, value in kept:
            if ask() != value:
                put(value)
        torch.use_deterministic_algorithms(deterministic, warn_only=only_warn)
        random.setstate(drawn[0])
        if numpy:
            numpy.random.set_state(drawn[1])


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
        self.names, self.used = names, []
        self.functions = list(find_functions(functions))
        flex = sys.modules.get("torch.nn.attention.flex_attention")
        if flex and "flex_attention" in names:
            self.functions += find_functions([flex.flex_attention])
        self.codes, self.allowed = [], set()

    def __enter__(self):
        Guard.active = self
        self.codes = [x.__code__ for x in self.functions]
        for function, code in zip(self.functions, self.codes, strict=True):
            function.__code__ = raise_ready_made.__code__.replace(
                co_name=function.__name__, co_freevars=code.co_freevars
            )
        return super().__enter__()

    def __exit__(self, *raised):
        super().__exit__(*raised)
        for function, code in zip(self.functions, self.codes, strict=True):
            function.__code__ = code
        Guard.active = None

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

    Guard.active.refuse(sys._getframe().f_code.co_name)


def find_functions(given: Iterable[Callable]) -> Iterator[FunctionType]:
    """Yield the functions of Python among some callables, unwrapped as well."""
    for function in given:
        while isinstance(function, FunctionType):
            yield function
            function = getattr(function, "__wrapped__", None)
