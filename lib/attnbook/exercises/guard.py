"""What surrounds a call of a learner's function: saved state, recorders."""

import contextlib
import inspect
import os
import random
import sys
import threading
from collections.abc import Iterator
from types import CodeType

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

LIBRARY, EXERCISES = "attnbook.", "attnbook.exercises."
# Modules that run during a call to measure memory; they hold no answers.
METERS = {"attnbook.profiling.allocations", "attnbook.attention.tensor_trees"}
# What a learner's code may leave changed, beside seeds: how to ask and to set.
SETTINGS = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_default_device, torch.set_default_device),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    ),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    (os.getcwd, os.chdir),
)


@contextlib.contextmanager
def preserve_state() -> Iterator[None]:
    """Leave seeds, modes, defaults and the folder as they were found."""
    numpy = sys.modules.get("numpy")
    state = random.getstate()
    drawn = numpy.random.get_state() if numpy else None
    found = [(ask(), ask, put) for ask, put in SETTINGS]
    try:
        with (
            torch.random.fork_rng(),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            torch.set_default_dtype(torch.float32)
            yield
    finally:
        for value, ask, put in found:
            if ask() != value:
                put(value)
        random.setstate(state)
        if numpy:
            numpy.random.set_state(drawn)


class ModuleRestorer:
    """Puts back the modules that a call removed from Python's list of them.

    At once: a module that is imported anew, such as `io`, has classes which
    those that hold the old one do not know. One serves many calls, because a
    copy of the list takes longer than most calls. Names are compared only if
    the number of modules or the last name has changed: a module that is
    imported after a removal is listed last.
    """

    def __init__(self):
        self.found = dict(sys.modules)

    def __enter__(self):
        if self._has_changed():
            self.found = dict(sys.modules)
        return self

    def _has_changed(self) -> bool:
        """Tell whether modules were added or removed since they were noted."""
        return len(self.found) != len(sys.modules) or next(
            reversed(self.found)
        ) != next(reversed(sys.modules))

    def __exit__(self, *raised) -> None:
        if self._has_changed():
            for name in self.found.keys() - sys.modules.keys():
                sys.modules[name] = self.found[name]


def seed_everything(seed: int) -> None:
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
        self.harmless: set = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Pass a call on, and note it if its name is forbidden."""
        if func not in self.harmless and not self.note(func):
            self.harmless.add(func)
        return func(*args, **(kwargs or {}))

    def note(self, func: object) -> bool:
        """Tell whether a function's name is forbidden, and note it if so."""
        name = getattr(func, "__name__", "").lstrip("_").partition(".")[0]
        if name not in self.forbidden:
            return False
        if name not in self.used:
            self.used.append(name)
        return True


class LibraryCallRecorder:
    """Notes calls of this book's own functions that get all that is given.

    Whoever hands on every input has answered with the library, not with code
    of their own; a function that gets a part of it, or something made of it, is
    a building block. It sees the threads that start meanwhile, where the guard
    is not active, and tells the guard what they call.

    Args:
        given: the inputs of the call.
        guard: notes the calls of forbidden functions in these threads.
    """

    def __init__(self, given: list, guard: Guard):
        self.given = [x for x in given if x is not None]
        self.guard = guard
        self.used: list[str] = []
        # By id, because hashing a code object is slower than inspecting it. The
        # objects are kept so that no other one can get the same id.
        self.ignored: dict[int, CodeType] = {}

    def __enter__(self):
        self.before = sys.getprofile(), threading.getprofile()
        sys.setprofile(self.record_call)
        threading.setprofile(self.record_in_thread)
        return self

    def __exit__(self, *raised) -> None:
        here, threads = self.before
        sys.setprofile(here)
        threading.setprofile(threads)

    def record_in_thread(self, frame, event: str, arg: object) -> None:
        """Look at one event of another thread."""
        if event == "c_call":
            self.guard.note(arg)
        self.record_call(frame, event, arg)

    def record_call(self, frame, event: str, arg: object) -> None:
        """Look at one call, return or other event of Python's."""
        if event != "call" or id(code := frame.f_code) in self.ignored:
            return
        module = frame.f_globals.get("__name__") or ""
        if not (_can_hold_answers(module) and can_take(code, len(self.given))):
            self.ignored[id(code)] = code
            return
        if "self" in frame.f_locals and any(
            frame.f_locals["self"] is x for x in self.given
        ):
            return  # a model that was handed over may be used
        name = f"{module}.{code.co_qualname}"
        whole = has_every_input(self.given, list_arguments(frame))
        if whole and name not in self.used:
            self.used.append(name)


def _can_hold_answers(module: str) -> bool:
    """Tell whether a module belongs to the library and can hold an answer.

    The modules that run the exercises and measure memory cannot. An exercise's
    own module can: it lies in a subpackage.
    """
    inner = module.removeprefix(EXERCISES)
    machinery = inner != module and "." not in inner
    return module.startswith(LIBRARY) and module not in METERS and not machinery


def can_take(code: CodeType, count: int) -> bool:
    """Tell whether a function can be called with so many arguments."""
    more = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    named = code.co_argcount + code.co_kwonlyargcount
    return named >= count or bool(code.co_flags & more)


def list_arguments(frame) -> list:
    """Return what a function was called with."""
    found = inspect.getargvalues(frame)
    got = [found.locals[name] for name in found.args if name in found.locals]
    got += found.locals.get(found.varargs, ()) if found.varargs else ()
    more = found.locals.get(found.keywords, {}) if found.keywords else {}
    return [*got, *more.values()]


def has_every_input(given: list, got: list) -> bool:
    """Tell whether a function got every input, each in a place of its own."""
    for x in given:
        place = next((i for i, y in enumerate(got) if is_same_input(x, y)), None)
        if place is None:
            return False
        del got[place]
    return bool(given)


def is_same_input(given, got) -> bool:
    """Tell whether a function got this input, not something made of it."""
    if given is got:
        return True
    plain = isinstance(given, bool | int | float | str)
    return plain and type(got) is type(given) and got == given


def write_full_name(function) -> str:
    """Return a function's full name, as LibraryCallRecorder notes it."""
    return f"{function.__module__}.{function.__qualname__}"
