"""The page of misconceptions: what each of its sections must have.

A section stands under a heading of the third level, which quotes the belief. It
has the paragraphs of `PARTS`, the address of a place where the belief occurs, a
link to a section of a chapter, code that asserts what refutes the belief, what
that code printed, and the exercise that catches it: a link to it, its check,
and the name of the mistake. The code is run by
tests/workshop/book/test_executed_pages.py.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from workshop.book.sections import make_anchor

PAGE = "misconceptions.md"
OCCURS = "*Where it occurs.*"
TEMPTING, TRUE = "*Why it is tempting.*", "*What is true.*"
CAUGHT = "*The exercise that catches it.*"
PARTS = (OCCURS, TEMPTING, TRUE, CAUGHT)
SECTION = re.compile(r"(?m)^### (.+)$")
CODE = re.compile(r"(?ms)^```python\n(.*?)^```$\s*(^```text\n.*?^```$)?")
LINK = re.compile(r"\[[^\]]+\]\((\d\d_\w+)\.ipynb(?:#([^)]+))?\)")
CHECK = re.compile(r"`(check_\w+)`")
SLUG = re.compile(r"`([a-z]+(?:-[a-z]+)*)`")


@dataclass(frozen=True)
class Misconception:
    """One section of the page.

    Attributes:
        belief: the heading, without its quotation marks.
        text: what stands under it.
    """

    belief: str
    text: str

    @property
    def caught(self) -> str:
        """The part on the exercise that catches it; "" if there is none."""
        return self.text.partition(CAUGHT)[2].partition("\n## ")[0]

    @property
    def exercise(self) -> tuple[str, str] | None:
        """Chapter and anchor of the exercise; None if there is no link."""
        found = LINK.search(self.caught)
        return (found[1], found[2] or "") if found else None

    @property
    def check(self) -> str:
        """The check of the exercise; "" if none is named."""
        return (CHECK.findall(self.caught) or [""])[0]

    @property
    def slugs(self) -> list[str]:
        """The names of the mistake, as the check gives them."""
        return SLUG.findall(self.caught)


def read_misconceptions(text: str) -> list[Misconception]:
    """Return the sections of the page."""
    _, *found = SECTION.split(text)
    pairs = zip(found[::2], found[1::2], strict=True)
    return [Misconception(belief.strip("“”"), body) for belief, body in pairs]


def find_faults(text: str, chapters: Path) -> list[str]:
    """Return a sentence for each thing that a section lacks."""
    return [
        f"{one.belief!r} {fault}"
        for one in read_misconceptions(text)
        for fault in (
            *find_missing_parts(one),
            *find_wrong_links(one, chapters),
        )
    ]


def find_missing_parts(one: Misconception) -> list[str]:
    """Return what a section lacks, whatever the chapters have."""
    faults = [f"has no part {x}" for x in PARTS if one.text.count(x) != 1]
    occurs = one.text.partition(OCCURS)[2].partition(TEMPTING)[0]
    if "](https://" not in occurs:
        faults.append("has no address of a place where it occurs")
    cells = CODE.findall(one.text)
    if not any("assert" in code for code, _ in cells):
        faults.append("has no cell that asserts what refutes it")
    if not any(printed for _, printed in cells):
        faults.append("has no cell that prints what was measured")
    if not LINK.search(one.text.partition(CAUGHT)[0]):
        faults.append("has no link to a chapter")
    if not one.exercise:
        faults.append("has no link to an exercise")
    if not one.check:
        faults.append("names no check")
    if not one.slugs:
        faults.append("names no mistake of the check")
    return faults


def find_wrong_links(one: Misconception, chapters: Path) -> list[str]:
    """Return what a section links to and no chapter has."""
    faults = []
    for chapter, anchor in LINK.findall(one.text):
        headings = read_headings(chapters / f"{chapter}.md")
        if not headings:
            faults.append(f"links to {chapter}, which is no chapter")
        elif anchor not in headings:
            faults.append(f"links to {chapter}#{anchor}, which is no section")
    if one.exercise and one.check and not faults:
        chapter, anchor = one.exercise
        under = read_headings(chapters / f"{chapter}.md")[anchor]
        if f"{one.check}(" not in under:
            faults.append(f"says that {anchor} asks {one.check}: it does not")
    return faults


def read_headings(path: Path) -> dict[str, str]:
    """Return what stands under each heading of a chapter, by its anchor."""
    if not path.exists():
        return {}
    _, *found = re.split(r"(?m)^##+ (.+)$", path.read_text("utf8"))
    return dict(zip(map(make_anchor, found[::2]), found[1::2], strict=True))


def require_parts(app) -> None:
    """Stop the build if a misconception lacks a part or links nowhere.

    Raises:
        ExtensionError: naming each belief and what it lacks.
    """
    from sphinx.errors import ExtensionError

    page = Path(app.srcdir) / "chapters" / PAGE
    if not page.exists():
        return
    if faults := find_faults(page.read_text("utf8"), page.parent):
        raise ExtensionError("\n".join(f"{PAGE}: {x}" for x in faults))


def setup(app) -> None:
    """Connect to Sphinx: before it reads the pages."""
    app.connect("builder-inited", require_parts)
