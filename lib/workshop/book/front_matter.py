"""Front matter: what a chapter says of itself, and every place that repeats it.

The YAML at the top of `chapters/NN_slug.md` has a key `chapter` with a title,
a question, its level, and whether it needs a GPU. The heading, the card under it,
the tables of the README and of the first page, the contents, and Colab's metadata
follow from it, and the minutes from the text: `make pages` writes them.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from workshop.book.sections import compute_minutes

FIELDS = {"title", "question", "level", "gpu"}
HEADER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)
HEADING = re.compile(r"(?m)^# .*$")
LEVEL = re.compile(r"(?m)^- \*Level\*: .*$")
TIME = re.compile(
    r"(?m)^- \*Time\*: \d+ minutes\s+(?:to\s+read|for\s+the\s+core,\s+\d+\s+"
    r"with\s+the\s+deeper\s+sections)( \([^)]*\))?,\s+\d+\s+more\s+for\s+the"
    r"\s+exercises\."
)
STARS = re.compile(r"(?m)^★+ · (\d+) minutes\.")
PLANNED = {
    13: ("Decoding", "how do models generate quickly?"),
    14: ("Several devices", "what if one machine is not enough?"),
}
PATTERN = "[0-9][0-9]_*.md"


@dataclass(frozen=True)
class FrontMatter:
    """What a chapter says of itself."""

    slug: str  # the file's name without ending
    title: str
    question: str
    level: str  # basic, intermediate or advanced
    gpu: bool  # whether Colab should offer one
    exercises: int  # minutes
    core: int  # minutes of the core sections
    minutes: int  # of all sections

    @property
    def number(self) -> int:
        return int(self.slug[:2])

    @property
    def heading(self) -> str:
        return f"{self.title}: {self.question}"

    @property
    def label(self) -> str:
        """The title with the chapter's number; chapter 0 shows none."""
        return f"{self.number}. {self.title}" if self.number else self.title


def read_front_matter(path: Path) -> FrontMatter:
    text = path.read_text("utf8")
    header = HEADER.match(text)
    data = yaml.safe_load(header[1]) if header else {}
    found = data.get("chapter") or {}
    if {*found} != FIELDS:
        raise ValueError(
            f"{path}: `chapter:` in the front matter needs {sorted(FIELDS)}, "
            f"and has {sorted(found)}"
        )
    exercises = sum(map(int, STARS.findall(text)))
    core, minutes = compute_minutes(text)
    return FrontMatter(
        path.stem, **found, exercises=exercises, core=core, minutes=minutes
    )


def read_chapters(folder: Path) -> list[FrontMatter]:
    return [read_front_matter(path) for path in sorted(folder.glob(PATTERN))]


def write_opening(text: str, front: FrontMatter) -> str:
    """Return a chapter's text whose heading and card follow its front matter."""
    time = f"- *Time*: {write_minutes(front)}{{}}, {front.exercises} "
    for name, pattern, line in (
        ("heading", HEADING, lambda _: f"# {front.heading}"),
        ("`- *Level*:`", LEVEL, lambda _: f"- *Level*: {front.level}."),
        (
            "`- *Time*: … minutes to read, … more for the exercises.`",
            TIME,
            lambda m: time.format(m[1] or "") + "more for the exercises.",
        ),
    ):
        text, count = pattern.subn(line, text, count=1)
        if not count:
            raise ValueError(f"{front.slug}.md has no line {name}")
    return text


def write_minutes(front: FrontMatter) -> str:
    """Return how long a chapter takes to read, its core apart if shorter."""
    if front.core == front.minutes:
        return f"{front.minutes} minutes to read"
    return (
        f"{front.core} minutes for the core, {front.minutes} with the deeper sections"
    )


def write_table(text: str, table: str) -> str:
    """Return a page with the table of chapters between its two marks."""
    marks = r"(<!-- chapters: begin -->\n).*?(<!-- chapters: end -->)"
    text, count = re.subn(
        marks, lambda m: f"{m[1]}\n{table}\n\n{m[2]}", text, flags=re.DOTALL
    )
    if not count:
        raise ValueError(
            "the page lacks `<!-- chapters: begin -->` and `<!-- chapters: end -->`"
        )
    return text


def list_chapters(
    chapters: Iterable[FrontMatter], folder: str = "", times: bool = False
) -> str:
    rows = {
        x.number: (f"[{x.label}]({folder}{x.slug}.ipynb)", x.question, f"{x.core} min")
        for x in chapters
    }
    for number, (title, question) in PLANNED.items():
        rows.setdefault(number, (f"{number}. {title} (planned)", question, ""))
    table = [("chapter", "question", "core"), ("---",) * 3]
    for _, (chapter, question, core) in sorted(rows.items()):
        table.append((chapter, question[:1].upper() + question[1:], core))
    return "\n".join(f"| {' | '.join(row[: 2 + times])} |" for row in table)
