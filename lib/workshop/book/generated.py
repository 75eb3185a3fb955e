"""Tables and pages that are made from code and records while the book is built.

A page has a line `<!-- made by the build: NAME -->` where one of `MAKERS`
writes. Nothing of it is stored in the repository, so nothing can be stale.
"""

import re
from collections.abc import Callable
from pathlib import Path

from workshop.book.cheat_sheet import write_formula_table, write_number_table
from workshop.book.evidence import write_run_table
from workshop.book.front_matter import list_chapters, read_chapters
from workshop.book.reference import write_reference

MARK = re.compile(r"(?m)^<!-- made by the build: ([\w ]+) -->$")


def write_chapter_table(root: Path) -> str:
    """Return the first page's table of chapters."""
    return list_chapters(read_chapters(root / "chapters"), times=True)


MAKERS: dict[str, Callable[[Path], str]] = {
    "chapters": write_chapter_table,
    "formulas": lambda root: write_formula_table(),
    "numbers": lambda root: write_number_table(),
    "runs": write_run_table,
}


def fill_text(text: str, root: Path) -> str:
    """Return a page's text with what the build makes."""

    def make(found: re.Match) -> str:
        kind, _, name = found[1].partition(" ")
        if kind == "reference":
            return write_reference(root / "lib/attnbook" / name, root)
        if kind not in MAKERS:
            raise ValueError(f"{found[1]!r} is none of {[*MAKERS, 'reference ...']}")
        return MAKERS[kind](root)

    return MARK.sub(make, text)


def fill_page(app, docname: str, source: list[str]) -> None:
    """Fill a page when Sphinx reads it, and again when a chapter has changed."""
    root = Path(app.srcdir)
    if {"chapters", "runs"} & {*MARK.findall(source[0])}:
        for path in root.glob("chapters/[0-9][0-9]_*"):
            app.env.note_dependency(str(path))
    source[0] = fill_text(source[0], root)


def setup(app) -> None:
    """Connect to Sphinx's reading of files."""
    app.connect("source-read", fill_page)
