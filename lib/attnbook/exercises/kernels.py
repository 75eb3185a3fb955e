"""Triton kernels as answers: Triton's interpreter runs them, without a GPU.

A notebook gets `tl` and `triton` from here. They are Triton's, or stand-ins with
which a kernel can be written where Triton cannot be installed.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
from torch import Tensor

from attnbook.exercises.check import is_empty_function
from attnbook.exercises.declare import Exercise, run_solution
from attnbook.exercises.isolation import Guard, neutral_settings
from attnbook.exercises.verdict import Verdict

__all__ = ["KernelExercise", "get_function", "is_kernel", "tl", "triton"]

NEEDS_TRITON = Verdict(
    "…",
    "not attempted: Triton, whose interpreter runs this kernel, is not installed "
    "here (pip install triton, on Linux or WSL)",
)


class Missing:
    """Stands in for Triton, as far as a kernel's first lines name it."""

    constexpr = int

    def jit(self, function: Callable) -> Callable:
        """Return the function."""
        return function


triton: Any
tl: Any
KERNELS: tuple[type, ...]
try:
    import triton
    import triton.experimental.gluon  # imported in a launch, it would see our functions
    import triton.language as tl
    from triton.runtime import interpreter
    from triton.runtime.jit import JITFunction

    KERNELS = JITFunction, interpreter.InterpretedFunction
except ImportError:
    triton = tl = Missing()
    KERNELS = ()


def is_kernel(x: object) -> bool:
    """Tell whether something is a kernel of Triton's."""
    return isinstance(x, KERNELS)


def get_function(x: Any) -> Any:
    """Return the Python function of a kernel; anything else as it is."""
    return inspect.unwrap(x.fn if is_kernel(x) else x)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class KernelExercise(Exercise):
    """A question whose answer is a kernel; where Triton is missing, it is not asked.

    Attributes:
        launch: launches a kernel, its first argument, on inputs; returns the output.
            A kernel may read its tensors and write the last of them.
    """

    launch: Callable
    runs_here = bool(KERNELS)

    def __post_init__(self):
        object.__setattr__(self, "solution", get_function(self.solution))
        super().__post_init__()

    def bind(self, answer: Callable, own: bool = False) -> Callable:
        """Return a kernel as a function of the inputs."""
        kernel = Interpreted(answer, own, self.forbidden)
        return functools.partial(self.launch, kernel)

    def run_attempt(self, *given, **more) -> dict:
        """Run an attempt, if Triton is installed."""
        return super().run_attempt(*given, **more) if self.runs_here else {}

    def judge(self, found) -> Verdict:
        """Reach a verdict from what an attempt did, if Triton is installed."""
        if not self.runs_here:
            return NEEDS_TRITON
        with neutral_settings():
            ours = [x.error for seed in found for x in run_solution(self, seed)]
        if error := next(filter(None, ours), ""):
            said = f"not attempted: Triton's interpreter fails here with {error}"
            return Verdict("…", said)
        return super().judge(found)


class Interpreted:
    """A kernel that is launched in Triton's interpreter: `x[grid](*arguments)`.

    Args:
        kernel: in whichever mode Triton was imported, or its function.
        own: whether this library's kernels are refused, and `names` of Triton's.
    """

    def __init__(self, kernel: Callable, own: bool, names: Collection[str]):
        self.function, self.own, self.names = get_function(kernel), own, names

    def __getitem__(self, grid: tuple[int, ...]) -> Callable:
        return functools.partial(self.launch, grid)

    def launch(self, grid: tuple[int, ...], *given, **constants) -> None:
        """Run the programs of a grid, one after the other."""
        if is_empty_function(self.function):
            raise NotImplementedError
        fence = Fence([x for x in given if isinstance(x, Tensor)])
        with contextlib.ExitStack() as entered:
            replace(entered, interpreter, "_interpreter", fence)
            # The language calls its own kernels, which are compiled or interpreted
            # as Triton was imported: functions do in both cases.
            for home in (tl, tl.standard, tl.tensor):
                for name, value in list(vars(home).items()):
                    if is_kernel(value):
                        replace(entered, home, name, self.open_kernel(name, value))
            kernel = interpreter.InterpretedFunction(self.copy_function())
            try:
                kernel[grid](*given, **constants)
            except interpreter.InterpreterError as error:
                raise error.__cause__ or error from None

    def open_kernel(self, name: str, kernel: Any) -> Callable:
        """Return the function of another kernel, or one that refuses it."""
        function = get_function(kernel)
        ours = function.__module__.startswith("attnbook.")
        if self.own and (ours or name in self.names):
            return functools.partial(refuse, name)
        return function

    def copy_function(self) -> FunctionType:
        """Return the kernel's function with a namespace of its own.

        The interpreter writes into it, and patches the modules that it finds there.
        """
        function = self.function
        if self.own and function.__module__.startswith("attnbook."):
            refuse(function.__name__)
        space = function.__globals__ | {"tl": tl, "core": tl.core}

        def copy(x: FunctionType) -> FunctionType:
            made = FunctionType(x.__code__, space, argdefs=x.__defaults__)
            return functools.update_wrapper(made, x)

        for name, value in function.__globals__.items():
            if is_kernel(value):
                inner = self.open_kernel(name, value)
                near = getattr(inner, "__globals__", None) is function.__globals__
                space[name] = copy(inner) if near else inner
        return copy(function)


def replace(entered: contextlib.ExitStack, home: Any, name: str, value: object) -> None:
    """Set an attribute until the stack is closed."""
    entered.callback(setattr, home, name, vars(home)[name])
    setattr(home, name, value)


def refuse(name: str, *given, **more) -> None:
    """Raise, because an answer calls a kernel that computes all of it."""
    if Guard.active:
        Guard.active.refuse(name)


class LoadError(Exception):
    """A kernel reads outside of its tensors."""


class StoreError(Exception):
    """A kernel writes outside of its output."""


class Fence:
    """Triton's memory as far as a kernel may reach.

    It reads tensors and writes the last. Without this, the interpreter reads and
    writes whatever lies beside them, or ends the process.
    """

    def __init__(self, tensors: Sequence[Tensor]):
        self.memory = interpreter._interpreter
        addresses = [*map(list_addresses, tensors)]
        self.readable, self.writable = np.concatenate(addresses), addresses[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.memory, name)

    def load(self, pointers: np.ndarray, mask: np.ndarray, *more) -> np.ndarray:
        """Read numbers of the tensors."""
        if outside := count_others(pointers, mask, self.readable):
            raise LoadError(f"tl.load reads {outside} outside of its tensors")
        return self.memory.load(pointers, mask, *more)

    def store(self, pointers: np.ndarray, value: np.ndarray, mask: np.ndarray) -> None:
        """Write numbers of the last tensor."""
        if outside := count_others(pointers, mask, self.writable):
            raise StoreError(f"tl.store writes {outside} outside of the output")
        self.memory.store(pointers, value, mask)


def list_addresses(x: Tensor) -> np.ndarray:
    """Return the address of each number of a tensor, and of none between its rows."""
    places = np.zeros(x.shape, dtype=np.uint64)
    for axis, (size, step) in enumerate(zip(x.shape, x.stride(), strict=True)):
        along = np.arange(size, dtype=np.uint64) * (step * x.element_size())
        places += along.reshape(-1, *[1] * (x.dim() - axis - 1))
    return places.ravel() + np.uint64(x.data_ptr())


def count_others(pointers: np.ndarray, mask: np.ndarray, known: np.ndarray) -> str:
    """Return how many numbers, of those in a mask, lie elsewhere; "" if none."""
    inside = np.isin(pointers, known) | ~mask.astype(bool)
    return "" if inside.all() else f"{(~inside).sum()} of {inside.size} numbers"
