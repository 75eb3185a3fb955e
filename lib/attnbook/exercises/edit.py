"""Wrong answers that are the solution with a few words of it replaced."""

import functools
import inspect
import sys
from collections.abc import Callable, Mapping

read_source = functools.cache(inspect.getsource)
EDITS: dict[Callable, tuple[str, ...]] = {}  # what each wrong answer replaces


def edit_solution(solution: Callable, *changes: str) -> Callable:
    """Return the solution with some of its text replaced.

    Args:
        solution: a function of a module, with a docstring.
        *changes: `old → new`: a text that occurs in its body exactly once, and
            its replacement; with nothing after the arrow, it is removed.

    Raises:
        ValueError: if a text does not occur there exactly once.
    """
    head, about, body = read_source(solution).split('"""', 2)
    for old, new in (change.split(" → ") for change in changes):
        if (count := body.count(old)) != 1:
            raise ValueError(
                f"{old!r} occurs {count} times in the body of "
                f"{solution.__name__}; it must occur exactly once"
            )
        body = body.replace(old, new)
    code = compile(f'{head}"""{about}"""{body}', "<edited solution>", "exec")
    found: dict[str, Callable] = {}
    exec(code, vars(sys.modules[solution.__module__]), found)
    answer = found[solution.__name__]
    EDITS[answer] = tuple(change.split(" → ")[0] for change in changes)
    return answer


def renumber(solution: Callable, numbers: Mapping[int, int]) -> Callable:
    """Return an answer whose numbers are those of the solution, some confused.

    Args:
        solution: returns a number.
        numbers: what is returned in place of some numbers.
    """

    def answer(*given: object) -> int:
        found = solution(*given)
        return numbers.get(found, found)

    return answer
