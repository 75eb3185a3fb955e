"""Three hints for each exercise, made from what it declares.

From a question to a line: what shape the result has; what the solution is made
of; and the line of it that an exercise declares, or the statement in which most
of the known mistakes are made.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from attnbook.exercises.cached_outcomes import compute_outcome
from attnbook.exercises.edit import EDITS, read_source
from attnbook.exercises.old_verdict import (
    YOURS,
    describe_case,
    join_sentences,
    name_function,
)

if TYPE_CHECKING:
    from attnbook.exercises.exercise import Exercise

FIRST, STEPS = 2014, 3
MOST = 8  # names of functions that a hint lists
# What an answer returns that tests a model or a function.
DECISIONS = {
    "cause", "explanation", "fault", "faults", "kind", "kinds", "limit",
    "no_leak", "possibility",
}  # fmt: skip
OPERATORS = (ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.UnaryOp)


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
    if case.probe:
        right = found.form
    elif "tensor" in found.form:
        right = f"{outputs}{write_shapes(found.output)}"
    else:
        right = f"{outputs}, {found.form}"
    asked = "How would you compute it on paper?"
    if decides(exercise):
        asked = (
            "Which inputs would you try, and what would each possibility "
            "change in the output?"
        )
    return join_sentences(
        [
            f"first, your function is tried {describe_case(case, names)}",
            f"The result is {right}",
            asked,
            f"The section “{exercise.section}” explains what you need",
        ]
    )


def decides(exercise: Exercise) -> bool:
    """Tell whether an answer tests a model or a function."""
    return not DECISIONS.isdisjoint(exercise.returns)


def write_shapes(output: Sequence[Tensor]) -> str:
    """Return the shapes of a result, as the end of a sentence."""
    shapes = [str(tuple(x.shape)) for x in output]
    if shapes == ["()"]:
        return ", a tensor with a single number"
    if len(shapes) == 1:
        return f" of shape {shapes[0]}"
    return f" of shapes {', '.join(shapes[:-1])} and {shapes[-1]}"


def list_parts(exercise: Exercise) -> str:
    """Return what the solution is made of, and a common mistake.

    A decision that is always the same is no attempt, and no common mistake.
    """
    functions = exercise.solution, *exercise.helpers
    count = sum(len(list_statements(function)) for function in functions)
    called = list(dict.fromkeys(list_called(*functions)))[:MOST]
    parts = f"{count} statement{'s' if count != 1 else ''}"
    uses = f" and uses {', '.join(f'`{x}`' for x in called)}" if called else ""
    tried = [
        x.because
        for x in exercise.mistakes
        if not (decides(exercise) and x.slug.startswith("always-"))
    ]
    name = YOURS if decides(exercise) else "the function"
    known = name_function(tried[0], name) if tried else ""
    avoid = f" A common mistake: {known}." if known else ""
    return f"the solution has {parts}{uses}.{avoid}"


def show_line(exercise: Exercise) -> str:
    """Return the line that an exercise declares, or the statement found."""
    best = exercise.key_line or find_statement(exercise)
    kind = "statement" if "\n" in best else "line"
    return f"one {kind} of the solution is\n\n{textwrap.indent(best, '    ')}"


def find_statement(exercise: Exercise) -> str:
    """Return the statement in which most of the known mistakes are made.

    It is one of the solution or of its helpers, and says more than which
    functions are called, if there is such a statement.
    """
    functions = exercise.solution, *exercise.helpers
    olds = [
        old for mistake in exercise.mistakes for old in EDITS.get(mistake.answer, ())
    ]
    given = set(inspect.signature(exercise.solution).parameters)
    lines = [
        (line, only_calls(node, given | find_own_names(function, *functions)))
        for function in functions
        for node, line in list_statements(function)
    ]
    best, _ = max(lines, key=lambda x: (count_in(x[0], olds), not x[1], len(x[0])))
    return best


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
        told = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        return function.body[told:]
    return list(tree.body)


def walk(
    nodes: Iterable[ast.AST], left_out: Collection[ast.AST] = ()
) -> Iterator[ast.AST]:
    """Yield nodes and what they contain, without those that are left out."""
    for node in nodes:
        if node not in left_out:
            yield node
            yield from walk(ast.iter_child_nodes(node), left_out)


def list_nodes(function: Callable) -> list[ast.AST]:
    """Return the nodes of a function's body, without checks of its inputs."""
    body = parse_body(function)
    return list(walk(body, find_checks(body)))


def find_checks(body: Sequence[ast.stmt]) -> set[ast.AST]:
    """Return the parts of a body that only check inputs.

    They raise an error or lead to one, they call a function that raises one, or
    they compute what only such parts use.
    """
    checks: set[ast.AST] = set()
    for node in walk(body):
        if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise):
            checks |= {node.test, *node.body}
        elif isinstance(node, ast.Raise) or (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and write_called(node.value).startswith("require_")
        ):
            checks.add(node)
    used = list_names(walk(body, checks), ast.Load)
    checked = list_names(walk(checks), ast.Load) - used
    for node in walk(body):
        if isinstance(node, ast.Assign):
            names = {x.id for x in node.targets if isinstance(x, ast.Name)}
            if len(names) == len(node.targets) and names <= checked:
                checks.add(node)
    return checks


def list_names(nodes: Iterable[ast.AST], context: type[ast.expr_context]) -> set[str]:
    """Return the names that some nodes read or set."""
    return {
        node.id
        for node in nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, context)
    }


def find_own_names(function: Callable, *functions: Callable) -> set[str]:
    """Return the names that mean something only where they are defined.

    They are a function's local names and the names of helpers; the parameters
    of the solution, which is the first of all functions, are known.
    """
    nodes = list(walk(parse_body(function)))
    names = list_names(nodes, ast.Store)
    names |= {x.name for x in nodes if isinstance(x, ast.FunctionDef)}
    names |= {x.arg for x in nodes if isinstance(x, ast.arg)}
    names |= set(inspect.signature(function).parameters)
    names |= {helper.__name__ for helper in functions[1:]}
    return names - set(inspect.signature(functions[0]).parameters)


def list_statements(solution: Callable) -> list[tuple[ast.stmt, str]]:
    """Return the simple statements of a function, those of loops too.

    With each its source; statements that only check inputs are left out.
    """
    simple = [
        node
        for node in list_nodes(solution)
        if isinstance(node, ast.stmt) and not hasattr(node, "body")
    ]
    simple.sort(key=lambda node: node.lineno)
    source = textwrap.dedent(read_source(solution))
    return [
        (
            node,
            textwrap.dedent(ast.get_source_segment(source, node, padded=True) or ""),
        )
        for node in simple
    ]


def only_calls(node: ast.stmt, names: Collection[str]) -> bool:
    """Tell whether a statement returns what some functions return, no more.

    Args:
        node: the statement.
        names: of these functions.
    """
    inside = list(walk([node]))
    called = list_names((x.func for x in inside if isinstance(x, ast.Call)), ast.Load)
    return (
        isinstance(node, ast.Return)
        and not called.isdisjoint(names)
        and not any(isinstance(x, OPERATORS) for x in inside)
    )


def list_called(solution: Callable, *helpers: Callable) -> Iterator[str]:
    """Yield the names of what a function calls, and then its helpers.

    Functions that only the solution knows are left out: what they call is
    among the names.
    """
    functions = solution, *helpers
    for function in functions:
        own = find_own_names(function, *functions)
        for node in list_nodes(function):
            if isinstance(node, ast.Call):
                method = isinstance(node.func, ast.Attribute)
                name = write_called(node)
                if name and (method or name not in own):
                    yield name
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                yield "@"


def write_called(call: ast.Call) -> str:
    """Return the name of the function or method that is called, or nothing."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""
