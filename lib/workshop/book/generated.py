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
from workshop.book.libraries import (
    write_library_table,
    write_mask_choice,
    write_versions,
)
from workshop.book.reference import write_reference

MARK = re.compile(r"(?m)^<!-- made by the build: ([\w ,;-]+) -->$")


MAKERS: dict[str, Callable[[Path], str]] = {
    "chapters": lambda root: list_chapters(
        read_chapters(root / "chapters"), times=True
    ),
    "choice of masks": write_mask_choice,
    "formulas": lambda root: write_formula_table(),
    "numbers": lambda root: write_number_table(),
    "runs": write_run_table,
    "versions": write_versions,
}


def fill_text(text: str, root: Path) -> str:
    """Return a page's text with what the build makes."""

    def make(found: re.Match) -> str:
        kind, _, name = found[1].partition(" ")
        if kind == "reference":
            return write_reference(root / "lib/attnbook" / name, root)
        if kind == "libraries":
            return write_library_table(root, name)
        if found[1] not in MAKERS:
            known = [*MAKERS, "libraries ...", "reference ..."]
            raise ValueError(f"{found[1]!r} is none of {known}")
        return MAKERS[found[1]](root)

    return MARK.sub(make, text)


def fill_page(app, docname: str, source: list[str]) -> None:
    """Fill a page when Sphinx reads it, and again when a chapter has changed."""
    root = Path(app.srcdir)
    if {"chapters", "runs"} & {*MARK.findall(source[0])}:
        for path in root.glob("chapters/[0-9][0-9]_*"):
            app.env.note_dependency(str(path))
    source[0] = fill_text(source[0], root)


def setup(app) -> None:
    app.connect("source-read", fill_page)
