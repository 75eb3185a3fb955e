"""A submitted notebook: its cells of code, and the exercises that it contains."""

import importlib
import json
import pkgutil
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import attnbook.exercises
from attnbook.exercises.check import Outcome
from attnbook.exercises.declare import FIRST, Exercise
from attnbook.exercises.verdict import Verdict

__all__ = ["FIRST", "PARTS", "Cell", "Exercise", "UnknownError", "Verdict"]

# What the data of an answer may consist of, beside plain values and tensors.
PARTS = [Outcome]
CHAPTERS = [x.name for x in pkgutil.iter_modules(attnbook.exercises.__path__)]
QUOTED = re.compile(r'"""|\'\'\'')
IMPORT = re.compile(
    r"^[ \t>]*(?:from|import)\s+attnbook\.exercises(?:\.|\s+import\s+)(\w+)", re.M
)


class UnknownError(Exception):
    """No exercise, or more than one, has a name that was given."""


@dataclass(frozen=True)
class Cell:
    """A cell of code, and its position among the notebook's cells, from 1."""

    number: int
    source: str


def read_cells(raw: bytes) -> list[Cell]:
    """Return a notebook's cells of code."""
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
    """Return the chapters whose checks a cell imports, outside quoted text."""
    return IMPORT.findall("".join(QUOTED.split(source)[::2]))


def list_exercises(chapters: Iterable[str] | None = None) -> dict[str, Exercise]:
    """Return all exercises, or those of some chapters, as `chapter.check_x`."""
    found: dict[str, Exercise] = {}
    for chapter in CHAPTERS if chapters is None else dict.fromkeys(chapters):
        if chapter in CHAPTERS:
            module = importlib.import_module(f"attnbook.exercises.{chapter}")
            for name, value in vars(module).items():
                if name.startswith("check_") and isinstance(value, Exercise):
                    found[f"{chapter}.{name}"] = value
    return found


def find_exercises(
    cells: Sequence[Cell], names: Iterable[str] | None = None
) -> dict[str, Exercise]:
    """Return the exercises with these names, or all of the chapters in a notebook."""
    known, chosen = list_exercises(), {}
    if names is None:
        return list_exercises([x for c in cells for x in find_chapters(c.source)])
    for name in names:
        found = [x for x in known if name in (x, x.partition(".")[2])]
        if len(found) > 1:
            raise UnknownError(f"{name!r} could be {' or '.join(found)}; name one")
        if not found:
            raise UnknownError(f"no chapter has an exercise {name!r}")
        chosen[found[0]] = known[found[0]]
    return chosen
