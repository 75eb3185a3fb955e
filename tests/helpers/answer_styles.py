"""Right answers in ordinary styles, made from a right answer.

Each style changes how numbers are held or handed back, not what is computed.
"""

import typing
from collections.abc import Callable, Iterator

import numpy as np
import torch
from jaxtyping import AbstractArray
from torch import Tensor

from attnbook.exercises.exercise import Exercise


def list_styles(exercise: Exercise) -> Iterator[tuple[str, Callable]]:
    """Yield the styles in which an exercise's solution can be written."""
    for words, style in find_styles(exercise).items():
        if exercise.same_precision and style is leave_in_single:
            continue
        yield words, style(exercise.solution)


def find_styles(exercise: Exercise) -> dict[str, Callable]:
    """Return the styles that suit the declared result of a solution.

    Running the solution instead would slow down the collection of tests.
    """
    returned = typing.get_type_hints(exercise.solution)["return"]
    if returned == list[int]:
        return COUNTS
    if returned in (int, float):
        return NUMBERS
    parts = typing.get_args(returned) or (returned,)
    tensors = all(issubclass(x, Tensor | AbstractArray) for x in parts)
    return PRECISIONS if tensors else {}


def apply(change: Callable) -> Callable:
    """Return a style that changes what an answer returns."""
    return lambda answer: lambda *given: change(answer(*given))


COUNTS = {
    "a tuple": apply(tuple),
    "NumPy integers": apply(lambda x: [np.int64(n) for n in x]),
    "an array": apply(np.array),
    "an array of floats": apply(lambda x: np.array(x, dtype=float)),
    "a tensor": apply(torch.tensor),
    "a tensor of floats": apply(lambda x: torch.tensor(x, dtype=torch.float64)),
    "whole floats": apply(lambda x: [float(n) for n in x]),
    "0-dimensional tensors": apply(lambda x: [torch.tensor(n) for n in x]),
    "a mixture": apply(
        lambda x: [(float, np.int64, torch.tensor)[i % 3](n) for i, n in enumerate(x)]
    ),
}
NUMBERS = {
    "a NumPy number": apply(np.float64),
    "a NumPy integer or float": apply(lambda x: np.asarray(x)[()]),
    "a 0-dimensional array": apply(np.array),
    "a 0-dimensional tensor": apply(torch.tensor),
    "a 0-dimensional tensor of doubles": apply(
        lambda x: torch.tensor(x, dtype=torch.float64)
    ),
    "a tensor with one entry": apply(lambda x: torch.tensor([x])),
    "a float": apply(float),
}


def cast(x: object, dtype: torch.dtype, kinds: tuple = ()) -> object:
    """Return a tensor of floating-point numbers in another precision."""
    floating = isinstance(x, Tensor) and x.is_floating_point()
    if floating and (not kinds or x.dtype in kinds):
        return x.to(dtype, copy=True)
    return x


def in_single(answer: Callable, back: bool) -> Callable:
    """Return an answer that computes in single precision, whatever comes."""

    def single(*given):
        kinds = {x.dtype for x in given if isinstance(x, Tensor)}
        found = answer(*(cast(x, torch.float32) for x in given))
        kind = next((k for k in kinds if k.is_floating_point), None)
        if not back or kind is None:
            return found
        if isinstance(found, Tensor):
            return cast(found, kind)
        return tuple(cast(x, kind) for x in found)

    return single


def leave_in_single(answer: Callable) -> Callable:
    """Return an answer whose results are in single precision."""
    return in_single(answer, back=False)


PRECISIONS = {
    "in single precision, cast back": lambda f: in_single(f, back=True),
    "in single precision": leave_in_single,
}
