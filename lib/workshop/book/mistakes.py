"""The page of named mistakes: a table a chapter, written by `make pages`."""

import importlib
import pkgutil
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from attnbook import exercises
from attnbook.exercises.declare import Exercise
from workshop.chapters import find_chapter

CHAPTERS = Path("chapters")
HEAD = """# Named mistakes

Every wrong answer that a check of this book knows by name, chapter by chapter.
The name is the verdict's `mistake`, which the
[grading command](teaching.md#grading) writes into its table. A check is named in
the row of its first mistake.
"""


class Entry(NamedTuple):
    """An exercise, the chapter that asks it, and the name of its check."""

    chapter: str
    name: str
    exercise: Exercise


def list_entries() -> Iterator[Entry]:
    """Yield every exercise, in the order in which the chapters ask them."""
    found = []
    for info in pkgutil.iter_modules(exercises.__path__, f"{exercises.__name__}."):
        chapter = find_chapter(info.name)
        if chapter != "everywhere":
            found.append((chapter, importlib.import_module(info.name)))
    for chapter, module in sorted(found, key=lambda pair: pair[0]):
        text = (CHAPTERS / f"{chapter}.md").read_text("utf8")
        asked = text.partition("\n## Exercises\n")[2]
        checks = [name for name, x in vars(module).items() if isinstance(x, Exercise)]
        for name in sorted(checks, key=lambda name: (asked.find(f"{name}("), name)):
            yield Entry(chapter, name, getattr(module, name))


def write_mistakes() -> str:
    parts = [HEAD]
    for chapter, entries in groupby(list_entries(), key=lambda entry: entry.chapter):
        parts.append(f"## [Chapter {int(chapter[:2])}]({chapter}.ipynb)\n")
        parts.append(write_table(entries))
    return "\n".join(parts)


def write_table(entries: Iterator[Entry]) -> str:
    """Return the mistakes of a chapter's exercises; each check is named once."""
    rows = ["| check | mistake | what it is |", "|---|---|---|"]
    for entry in entries:
        name = f"`{entry.name}`"
        for mistake in entry.exercise.mistakes:
            sentence = write_sentence(mistake.because)
            rows.append(f"| {name} | `{mistake.slug}` | {sentence} |")
            name = ""
    return "\n".join(rows) + "\n"


def write_sentence(text: str) -> str:
    """Return a text as a sentence that does not end its cell."""
    stop = "" if text.endswith(("?", ".")) else "."
    # A symbol, such as ε, stays as it is.
    first = text[:1].upper() if text[:1].isascii() else text[:1]
    return (first + text[1:] + stop).replace("|", "\\|")
