"""Three hints for each exercise, made from what it declares.

From a question to a line: what shape the result has; what the solution is made
of; and the line of it in which most of the known mistakes are made.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnbook.exercises.cached_outcomes import compute_outcome
from attnbook.exercises.edit import EDITS, read_source
from attnbook.exercises.verdict import describe_case

if TYPE_CHECKING:
    from attnbook.exercises.exercise import Exercise

FIRST, STEPS = 2014, 3
MOST = 8  # names of functions that a hint lists


@dataclass(frozen=True)
class Hint:
    """One hint, shown as its text."""

    step: int
    text: str

    def __repr__(self) -> str:
        return f"Hint {self.step} of {STEPS}: {self.text}"


def write_hint(exercise: Exercise, step: int = 1) -> Hint:
    """Return a hint for an exercise.

    Args:
        exercise: the exercise.
        step: 1, a question; 2, what the solution is made of; 3, a line of it.

    Raises:
        ValueError: if there is no such step.
    """
    if step not in range(1, STEPS + 1):
        raise ValueError(f"there are hints 1 to {STEPS}, and no hint {step}")
    write = (ask_question, list_parts, show_line)[step - 1]
    return Hint(step, write(exercise))


def ask_question(exercise: Exercise) -> str:
    """Return a question about the simplest case and what it gives."""
    case = exercise.draw_cases(FIRST)[0]
    names = tuple(inspect.signature(exercise.solution).parameters)
    found = compute_outcome(exercise.draw, exercise.solution, FIRST, 0)
    outputs = ", ".join(f"`{name}`" for name in exercise.returns)
    if "tensor" in found.form:
        shapes = " and ".join(str(tuple(x.shape)) for x in found.output)
        plural = "s" if len(found.output) > 1 else ""
        right = f"{outputs} of shape{plural} {shapes}"
    else:
        right = f"{outputs}, {found.form}"
    return (
        f"the first test is {describe_case(case, names)}. The result is "
        f"{right}. How would you compute it on paper? “{exercise.section}” "
        f"has an example."
    )


def list_parts(exercise: Exercise) -> str:
    """Return what the solution is made of, and the most common mistake."""
    lines = list_statements(exercise.solution)
    called = list(dict.fromkeys(list_called(exercise.solution)))[:MOST]
    count = f"{len(lines)} statement{'s' if len(lines) != 1 else ''}"
    uses = f" and uses {', '.join(f'`{x}`' for x in called)}" if called else ""
    known = exercise.mistakes[0].because if exercise.mistakes else ""
    avoid = f" A common mistake: {known}." if known else ""
    return f"the solution has {count}{uses}.{avoid}"


def show_line(exercise: Exercise) -> str:
    """Return the line in which most of the known mistakes are made."""
    lines = list_statements(exercise.solution)
    olds = [
        old
        for mistake in exercise.mistakes
        for old in EDITS.get(mistake.answer, ())
    ]
    best = max(lines, key=lambda line: (count_in(line, olds), len(line)))
    return f"one line of the solution is\n\n{textwrap.indent(best, '    ')}"


def count_in(line: str, parts: Sequence[str]) -> int:
    """Return how many of some parts are in a line."""
    plain = "".join(line.split())
    return sum("".join(part.split()) in plain for part in parts)


def parse_body(solution: Callable) -> list[ast.stmt]:
    """Return the statements of a function, without its docstring."""
    tree = ast.parse(textwrap.dedent(read_source(solution)))
    function = tree.body[0]
    if isinstance(function, ast.FunctionDef):
        first = function.body[0]
        told = isinstance(first, ast.Expr) and isinstance(
            first.value, ast.Constant
        )
        return function.body[told:]
    return list(tree.body)


def list_statements(solution: Callable) -> list[str]:
    """Return the simple statements of a function, those of loops too."""
    simple = [
        node
        for statement in parse_body(solution)
        for node in ast.walk(statement)
        if isinstance(node, ast.stmt)
        and not isinstance(node, ast.Raise)
        and not hasattr(node, "body")
    ]
    simple.sort(key=lambda node: node.lineno)
    source = textwrap.dedent(read_source(solution))
    return [
        textwrap.dedent(ast.get_source_segment(source, node, padded=True) or "")
        for node in simple
    ]


def list_called(solution: Callable) -> Iterator[str]:
    """Yield the names of the functions and methods that a function calls."""
    for statement in parse_body(solution):
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Attribute):
                    yield node.func.attr
                elif isinstance(node.func, ast.Name):
                    yield node.func.id
            elif isinstance(node, ast.BinOp) and isinstance(
                node.op, ast.MatMult
            ):
                yield "@"
