"""A submitted notebook: its code, and which exercise each check is about."""

import ast
import importlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from attnbook.exercises.exercise import Exercise
from attnbook.grade import files

HOOK = "__attempt__"  # replaces a check: it records its argument
MODULE = re.compile(r"attnbook\.exercises\.(\w+)")


@dataclass
class Cell:
    """A cell of code as it will be run.

    Attributes:
        number: its position among the notebook's cells, from 1.
        code: its code, with every check replaced by a record of the attempt.
        attempts: the argument of each check, as expressions.
        error: why it cannot be run, if so.
    """

    number: int
    code: str
    attempts: dict[str, ast.expr] = field(default_factory=dict)
    error: str | None = None


class AttemptRecorder(ast.NodeTransformer):
    """Replaces `check_x(attempt)` by a record of the attempt."""

    def __init__(self, known: set[str]):
        self.known = known
        self.attempts: dict[str, ast.expr] = {}

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace one call, if it is a check."""
        self.generic_visit(node)
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name not in self.known or not node.args:
            return node
        self.attempts[name] = node.args[0]
        given = [ast.Constant(name), node.args[0]]
        note = ast.Call(ast.Name(HOOK, ast.Load()), given, [])
        return ast.copy_location(note, node)


def read(path: Path) -> list[tuple[int, str]]:
    """Return a notebook's code cells with their positions.

    Raises:
        ValueError: if it is not a notebook.
    """
    try:
        raw = files.read_bytes(path)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from error
    try:
        cells = json.loads(raw.decode("utf8"))["cells"]
        return [
            (number, "".join(cell.get("source", "")))
            for number, cell in enumerate(cells, start=1)
            if cell.get("cell_type") == "code"
        ]
    except Exception as error:  # a file can hold anything
        raise ValueError("it is not a notebook") from error


def find_exercises(sources: list[str]) -> dict[str, Exercise]:
    """Return all exercises of every chapter whose checks are imported."""
    found: dict[str, Exercise] = {}
    for name in dict.fromkeys(MODULE.findall("\n".join(sources))):
        try:
            module = importlib.import_module(f"attnbook.exercises.{name}")
        except ImportError:
            continue
        for check in getattr(module, "__all__", ()):
            if isinstance(exercise := getattr(module, check), Exercise):
                found[check] = exercise
    return found


def prepare_cell(number: int, source: str, known: set[str]) -> Cell:
    """Return a cell as it will be run; IPython magics are left out."""
    if source.lstrip().startswith("%%"):
        return Cell(number, "")
    source = re.sub(
        r"^(\s*)(?:[%!?].*|\S.*\?\s*)$", r"\1pass", source, flags=re.M
    )
    try:
        tree = ast.parse(source)
        notes = AttemptRecorder(known)
        code = ast.unparse(ast.fix_missing_locations(notes.visit(tree)))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        first = str(error).partition("\n")[0]
        message = f"{type(error).__name__}: {first}"
        attempts: dict[str, ast.expr] = {
            x: ast.Constant(None) for x in known if f"{x}(" in source
        }
        return Cell(number, "", attempts, error=message)
    return Cell(number, code, notes.attempts)
