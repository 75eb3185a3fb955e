"""Wrong answers that are the solution with a few words of it replaced."""

import functools
import inspect
import sys
from collections.abc import Callable

source_of = functools.cache(inspect.getsource)


def edited(solution: Callable, *changes: str) -> Callable:
    """Return the solution with some of its text replaced.

    Args:
        solution: a function of a module, with a docstring.
        *changes: `old → new`: what stands in its body, exactly once, and what
            replaces it; with nothing after the arrow, it is removed.

    Raises:
        ValueError: if a text does not stand there once.
    """
    head, about, body = source_of(solution).split('"""', 2)
    for old, new in (change.split(" → ") for change in changes):
        if (count := body.count(old)) != 1:
            raise ValueError(
                f"{old!r} stands {count} times in the body of "
                f"{solution.__name__}; it must stand there once"
            )
        body = body.replace(old, new)
    code = compile(f'{head}"""{about}"""{body}', "<edited>", "exec")
    found: dict[str, Callable] = {}
    exec(code, vars(sys.modules[solution.__module__]), found)
    return found[solution.__name__]
