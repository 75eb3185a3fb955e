"""What exercises share whose answer finds a fault in code by tests.

A module is built with or without a fault; an answer calls it with inputs of its
own and returns the number of the fault, 0 if there is none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.exercises.mistake import Mistake


@dataclass(eq=False)
class FaultyModule:
    """A module with or without a fault, equal to one with the same numbers.

    Attributes:
        built_in: the name of the fault.
        numbers: the module's parameters.
    """

    built_in: str
    numbers: tuple[Tensor, ...]

    def __eq__(self, other: object) -> bool:
        """Tell whether both have the same fault and the same numbers."""
        return (
            isinstance(other, FaultyModule)
            and self.built_in == other.built_in
            and all(map(torch.equal, self.numbers, other.numbers))
        )

    # Equal by their numbers, which may change: not hashable.
    __hash__ = None  # type: ignore[assignment]


def differ(a: Tensor, b: Tensor) -> bool:
    """Tell whether two tensors differ by more than rounding.

    Rounding stays below a fifth of the bound, and what a fault changes is more
    than five times the bound: test_decisions.py measures both.
    """
    return not torch.allclose(a, b, atol=1e-4)


def describe_fault(built_in: str, faults: Mapping[str, int]) -> str:
    """Return how the name of a case calls a fault, or that there is none."""
    return f"the fault “{built_in}”" if faults[built_in] else "no fault"


def list_number_mistakes(solution: Callable) -> tuple[Mistake, Mistake]:
    """Return the mistakes in the number of a fault that was found."""
    return (
        Mistake(
            "counted-from-one",
            "faults counted from 1",
            "its numbers are one too high: 0 means that there is no fault",
            lambda *given: solution(*given) + 1,
        ),
        Mistake(
            "only-right-or-wrong",
            "faults not told apart",
            "it tells only whether there is a fault; return its number",
            lambda *given: min(solution(*given), 1),
        ),
    )


NEVER_FOUND = Mistake(
    "always-right",
    "no fault found",
    "it never finds a fault",
    lambda *given: 0,
)
