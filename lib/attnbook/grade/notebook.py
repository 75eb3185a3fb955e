"""A submitted notebook: its cells of code, and the exercises that it contains."""

import ast
import importlib
import json
import pkgutil
import re
from collections.abc import Iterable
from dataclasses import dataclass

import attnbook.exercises
from attnbook.exercises.exercise import Exercise

CHECK = re.compile(r"\bcheck_\w+")
# Imports in a cell that is no Python as it stands, such as one with a magic.
IMPORT = re.compile(
    r"^(?:\s|>>> )*(?:from|import)\s+attnbook\.exercises(?:\.|\s+import\s+)(\w+)", re.M
)


@dataclass(frozen=True)
class Cell:
    """A cell of code, and its position among the notebook's cells, from 1."""

    number: int
    source: str


def read_cells(raw: bytes) -> list[Cell]:
    """Return a notebook's cells of code.

    Raises:
        ValueError: if it is not a notebook.
    """
    try:
        cells = json.loads(raw.decode("utf8"))["cells"]
        return [
            Cell(number, "".join(cell.get("source", "")))
            for number, cell in enumerate(cells, start=1)
            if cell.get("cell_type") == "code"
        ]
    except Exception as error:  # a file can hold anything
        raise ValueError("it is not a notebook") from error


def find_chapters(source: str) -> list[str]:
    """Return the chapters whose checks a cell imports."""
    try:
        tree = ast.parse(source)
    except Exception:  # no Python, or too deep
        return IMPORT.findall(source)
    full = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            full += [x.name for x in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            full += [f"{node.module}.{x.name}" for x in node.names]
    return [x.split(".")[2] for x in full if x.startswith("attnbook.exercises.")]


def names_check(cell: Cell, name: str) -> bool:
    """Tell whether a check's name occurs in a cell."""
    return name in CHECK.findall(cell.source)


def list_chapters() -> list[str]:
    """Return the chapters that may have exercises, which are imported."""
    found = pkgutil.iter_modules(attnbook.exercises.__path__)
    return [x.name for x in found]


def find_exercises(chapters: Iterable[str]) -> dict[str, Exercise]:
    """Return all exercises of these chapters, as `chapter.check_x`."""
    known = list_chapters()
    found: dict[str, Exercise] = {}
    for chapter in dict.fromkeys(x for x in chapters if x in known):
        module = importlib.import_module(f"attnbook.exercises.{chapter}")
        for name in getattr(module, "__all__", ()):
            if isinstance(exercise := getattr(module, name), Exercise):
                found[f"{chapter}.{name}"] = exercise
    return found


def choose_exercises(names: Iterable[str]) -> dict[str, Exercise]:
    """Return the exercises with these names, `check_x` or `chapter.check_x`.

    Raises:
        LookupError: if there is none, or more than one, of a name.
    """
    known = find_exercises(list_chapters())
    chosen = {}
    for name in names:
        found = [x for x in known if name in (x, x.partition(".")[2])]
        if not found:
            raise LookupError(f"no chapter has an exercise {name!r}")
        if len(found) > 1:
            raise LookupError(f"{name!r} could be {' or '.join(found)}; name one")
        chosen[found[0]] = known[found[0]]
    return chosen
