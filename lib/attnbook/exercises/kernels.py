"""Triton kernels as answers: Triton's interpreter runs them, without a GPU.

A notebook gets `tl` and `triton` from here. They are Triton's, or stand-ins with
which a kernel can be written where Triton cannot be installed.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnbook.exercises.check import is_empty_function
from attnbook.exercises.declare import Exercise, run_solution
from attnbook.exercises.isolation import Guard, neutral_settings
from attnbook.exercises.verdict import Verdict

NEEDS_TRITON = (
    "not attempted: Triton, whose interpreter runs this kernel, is not installed "
    "here (pip install triton, on Linux or WSL)"
)

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
    triton = tl = SimpleNamespace(jit=lambda function: function, constexpr=int)
    KERNELS = ()


def get_function(x: Any) -> Any:
    """Return the Python function of a kernel; a function as it is."""
    return inspect.unwrap(x.fn if isinstance(x, KERNELS) else x)


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
        refused = self.forbidden if own else None
        return functools.partial(self.launch, Interpreted(answer, refused))

    def run_attempt(self, *given, **more) -> dict:
        """Run an attempt, if Triton is installed."""
        return super().run_attempt(*given, **more) if self.runs_here else {}

    def judge(self, found) -> Verdict:
        """Reach a verdict from what an attempt did, if Triton runs the solution."""
        if not self.runs_here:
            return Verdict("…", NEEDS_TRITON)
        with neutral_settings():
            errors = {x.error for seed in found for x in run_solution(self, seed)}
        if failed := max(errors, default=""):
            return Verdict("…", f"not attempted: Triton's interpreter fails: {failed}")
        return super().judge(found)


@dataclass
class Interpreted:
    """A kernel for Triton's interpreter: `x[grid](*arguments)`.

    Attributes:
        kernel: in whichever mode Triton was imported, or its function.
        refused: names in `tl` that it may not call, nor this library's kernels;
            None to allow all.
    """

    kernel: Callable
    refused: Collection[str] | None

    def __getitem__(self, grid: tuple[int, ...]) -> Callable:
        return functools.partial(self.run, grid)

    def run(self, grid: tuple[int, ...], *given, **constants) -> None:
        """Run the programs of a grid, one after the other."""
        function = get_function(self.kernel)
        if type(function) is not FunctionType or function.__name__ == "<lambda>":
            raise TypeError("a kernel is a function with `@triton.jit` and `def`")
        if is_empty_function(function):
            raise NotImplementedError
        if (refusal := self.open(function)) is not function:
            refusal()
        with contextlib.ExitStack() as entered:

            def put(home: Any, name: str, value: object) -> None:
                entered.callback(setattr, home, name, vars(home)[name])
                setattr(home, name, value)

            memory = fence([x for x in given if isinstance(x, Tensor)])
            put(interpreter, "_interpreter", memory)
            # Triton keeps every function that it rewrites, with its namespace.
            put(interpreter.InterpretedFunction, "rewritten_fn", {})
            # The language calls its own kernels, which are compiled or interpreted
            # as Triton was imported: functions do in both cases.
            for home in (tl, tl.standard, tl.tensor):
                for name, value in list(vars(home).items()):
                    if isinstance(value, KERNELS):
                        put(home, name, self.open(value))
            kernel = interpreter.InterpretedFunction(self.copy(function))
            # Rewriting makes `x.constexpr` a string, which Triton reads for `tl` only.
            kernel.rewrite().__annotations__ = function.__annotations__
            try:
                kernel[grid](*given, **constants)
            except interpreter.InterpreterError as error:
                raised = error.__cause__ or error
                others = {"np", "numpy", "torch"} & {*function.__code__.co_names}
                if others and isinstance(raised, AttributeError | TypeError):
                    said = f"a kernel computes with `tl`, not with `{others.pop()}`"
                    raised = TypeError(f"{said}: {raised}")
                raise raised from None

    def open(self, kernel: Callable) -> Callable:
        """Return the function of a kernel, or one that refuses it."""
        function = get_function(kernel)
        name = getattr(function, "__name__", "")
        home = getattr(function, "__module__", "") or ""
        if self.refused is not None and (
            home.startswith("attnbook.")
            or (home.startswith("triton.") and name in self.refused)
        ):
            return lambda *given, **more: Guard.active and Guard.active.refuse(name)
        return function

    def copy(self, function: Callable) -> Callable:
        """Return a kernel's function with a namespace of its own.

        The interpreter writes into it, and patches the modules that it finds there.
        """
        home, closed = function.__globals__, inspect.getclosurevars(function).nonlocals
        space = home | closed | {"1": tl, "2": tl.core}

        def move(x: Callable) -> Callable:
            code = x.__code__, space, x.__name__, x.__defaults__, x.__closure__
            return functools.update_wrapper(FunctionType(*code), x)

        for name, value in [*space.items()]:
            # A copy from another process has functions where kernels were.
            if isinstance(value, (*KERNELS, FunctionType)):
                inner = self.open(value)
                # A notebook's `open` wraps the builtin one, which has no globals.
                own = getattr(inner, "__globals__", None) is home
                space[name] = move(inner) if own else inner
        return move(function)


class LoadError(Exception):
    """A kernel reads outside of its tensors."""


class StoreError(Exception):
    """A kernel writes outside of its output."""


# Where Triton's memory takes the pointers and the mask, if it does.
MEMORY = {
    "load": (0, 1),
    "store": (0, 2),
    "atomic_rmw": (1, 3),
    "atomic_cas": (0, None),
}


def fence(tensors: Sequence[Tensor]) -> SimpleNamespace:
    """Return Triton's memory as far as a kernel may read tensors and write the last.

    Otherwise the interpreter reads and writes what lies beside them, or crashes.
    """
    memory = interpreter._interpreter
    addresses = [*map(list_addresses, tensors)]

    def watch(name: str, at: int, masked: int | None) -> Callable:
        known = np.concatenate(addresses) if name == "load" else addresses[-1]

        def watched(*given) -> Any:
            mask = given[masked] if masked else True
            outside = ~np.isin(given[at], known) & np.asarray(mask, bool)
            if outside.any():
                said = f"{outside.sum()} of {outside.size} numbers outside of"
                if name == "load":
                    raise LoadError(f"the kernel reads {said} its tensors")
                raise StoreError(f"the kernel writes {said} the output")
            return getattr(memory, name)(*given)

        return watched

    watched = {name: watch(name, *places) for name, places in MEMORY.items()}
    return SimpleNamespace(**vars(memory) | watched)


def list_addresses(x: Tensor) -> np.ndarray:
    """Return the address of each number of a tensor, and of none between its rows."""
    size = x.element_size()
    places = torch.arange(x.untyped_storage().nbytes() // size, device="cpu")
    inside = places.as_strided(x.shape, x.stride(), 0).ravel()
    return (x.data_ptr() + size * inside).numpy().astype(np.uint64)
