"""Right answers that look different, one module per chapter.

`ANSWERS` of a module maps an exercise's name to (how it differs, answer).
"""

from collections.abc import Callable

import torch
from torch import Tensor


def collect_answers(
    names: dict, **prefixes: str
) -> dict[str, list[tuple[str, Callable]]]:
    """Return the answers among a module's names, by their exercise's name.

    Args:
        names: the module's names. That of an answer is its exercise's prefix
            and how it differs: `causal_by_tril`.
        prefixes: the prefix of each exercise.
    """
    return {
        exercise: [
            (name.removeprefix(f"{prefix}_").replace("_", " "), answer)
            for name, answer in names.items()
            if name.startswith(f"{prefix}_")
        ]
        for exercise, prefix in prefixes.items()
    }


def in_double(solution: Callable) -> Callable:
    """Return the solution computed in double precision, whatever comes."""

    def answer(*given):
        floating = [x for x in given if is_floating(x)]
        found = solution(*(cast(x, torch.float64) for x in given))
        if isinstance(found, Tensor):
            return cast(found, floating[0].dtype)
        return tuple(cast(x, floating[0].dtype) for x in found)

    return answer


def is_floating(x: object) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def cast(x: object, dtype: torch.dtype) -> object:
    """Return a copy of a floating-point tensor, anything else as it is."""
    return x.to(dtype, copy=True) if is_floating(x) else x
