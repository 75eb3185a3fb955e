"""The page of named mistakes: a table a chapter, written by `make pages`."""

import importlib
import pkgutil
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path

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


def list_exercises() -> Iterator[tuple[str, str, Exercise]]:
    """Yield chapter, check and exercise, in the order in which chapters ask them."""
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
            yield chapter, name, getattr(module, name)


def write_mistakes() -> str:
    parts = [HEAD]
    for chapter, asked in groupby(list_exercises(), key=itemgetter(0)):
        parts.append(f"## [Chapter {int(chapter[:2])}]({chapter}.ipynb)\n")
        parts += ["| check | mistake | what it is |", "|---|---|---|"]
        for _, check, exercise in asked:
            name = f"`{check}`"  # once
            for mistake in exercise.mistakes:
                sentence = write_sentence(mistake.because)
                parts.append(f"| {name} | `{mistake.slug}` | {sentence} |")
                name = ""
        parts.append("")
    return "\n".join(parts)


def write_sentence(text: str) -> str:
    stop = "" if text.endswith(("?", ".")) else "."
    # A symbol, such as ε, stays as it is.
    first = text[:1].upper() if text[:1].isascii() else text[:1]
    return (first + text[1:] + stop).replace("|", "\\|")
