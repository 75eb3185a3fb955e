"""Lessons of 90 minutes, one for each chapter.

`lessons.toml` says what is read before a lesson, which predictions are asked
aloud and which exercises are done when. The minutes follow from the chapters:
an exercise takes those that it declares; what is left after the exercises and
the two ends of the lesson is divided among the core sections in proportion to
their reading time, with some minutes more where a prediction is asked.
"""

import ast
import json
import re
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from workshop.book.catalogue import Entry, list_entries, make_anchor
from workshop.book.front_matter import FrontMatter, read_chapters
from workshop.book.sections import MARK, Section, read_sections

CHAPTERS = Path("chapters")
TABLE = Path(__file__).with_name("lessons.toml")
LESSON, OPENING, CLOSING = 90, 5, 5  # minutes
ASKING = 2  # minutes more for a prediction that is asked aloud
SECTIONS, CHECKS = ("before", "ask"), ("in_class", "at_home")
CALLS = ("predict", "predict_number")
FIELDS = ("opening", *SECTIONS, *CHECKS)
STATED = re.compile(
    r"Predict first: (.*?)(?: a\) (.*?) Measured| \((\d+ to \d+)\) Result): "
)


@dataclass(frozen=True)
class Step:
    """A part of a lesson.

    Attributes:
        minutes: how long it takes.
        what: what is done, in Markdown.
        ask: the question that is asked aloud before it; "" if there is none.
    """

    minutes: int
    what: str
    ask: str = ""


@dataclass(frozen=True)
class Lesson:
    """What a chapter's lesson consists of.

    Attributes:
        front: what the chapter says of itself.
        opening: what the class votes on, at the beginning and at the end.
        before: core sections that are read at home.
        taught: the other core sections, in their order.
        questions: the predictions that are asked aloud, by section.
        in_class: exercises of the lesson.
        at_home: exercises for afterwards.
        deeper: the chapter's deeper sections.
    """

    front: FrontMatter
    opening: str
    before: tuple[Section, ...]
    taught: tuple[Section, ...]
    questions: dict[str, str]
    in_class: tuple[Entry, ...]
    at_home: tuple[Entry, ...]
    deeper: tuple[Section, ...]

    @property
    def time_for_sections(self) -> int:
        """The minutes that are left for the sections."""
        return LESSON - OPENING - CLOSING - count_minutes(self.in_class)

    @property
    def pace(self) -> float:
        """How much longer the sections take in class than to read."""
        asking = ASKING * len(self.questions)
        reading = sum(x.minutes for x in self.taught)
        return (self.time_for_sections - asking) / reading

    def plan(self) -> list[Step]:
        """Return the lesson's steps, which take 90 minutes together."""
        slug, total = self.front.slug, self.time_for_sections
        shares = [
            self.pace * x.minutes + ASKING * (x.title in self.questions)
            for x in self.taught
        ]
        taught = [
            Step(
                minutes,
                f"[{x.title}]({slug}.ipynb#{x.anchor})",
                self.questions.get(x.title, ""),
            )
            for minutes, x in zip(round_shares(shares, total), self.taught, strict=True)
        ]
        exercises = [
            Step(x.exercise.minutes, f"In pairs: {write_exercise(x)}")
            for x in self.in_class
        ]
        first = Step(OPENING, "The chapter's question, and a vote.", self.opening)
        last = Step(CLOSING, "The quiz, and the vote again.")
        return [first, *taught, *exercises, last]


def round_shares(shares: list[float], total: int) -> list[int]:
    """Return whole numbers, at least 1, near the shares and of this sum."""
    whole = [max(1, int(x)) for x in shares]
    while missing := total - sum(whole):
        step = 1 if missing > 0 else -1
        able = [i for i, minutes in enumerate(whole) if minutes + step > 0]
        # The one whose share is missed by most.
        i = max(able, key=lambda i: step * (shares[i] - whole[i]))
        whole[i] += step
    return whole


def read_lessons(data: dict, folder: Path = CHAPTERS) -> dict[str, Lesson]:
    """Return the lesson of every chapter, by the chapter's file name.

    Raises:
        ValueError: naming the chapter, if it has no lesson, or its lesson
            names a section or an exercise that the chapter does not have, or
            leaves less time than reading takes.
    """
    fronts = {front.slug: front for front in read_chapters(folder)}
    entries: dict[str, dict[str, Entry]] = {slug: {} for slug in fronts}
    for entry in list_entries():
        if entry.chapter in entries:
            entries[entry.chapter][entry.name] = entry
    lessons = {slug: x for slug, x in data.items() if slug != "syllabus"}
    if differing := {*fronts} ^ {*lessons}:
        raise ValueError(f"a lesson or its chapter is missing: {differing}")
    return {
        slug: make_lesson(front, lessons[slug], entries[slug], folder)
        for slug, front in fronts.items()
    }


def make_lesson(
    front: FrontMatter, data: dict, entries: dict[str, Entry], folder: Path
) -> Lesson:
    """Return a chapter's lesson.

    Raises:
        ValueError: as `read_lessons` says.
    """
    slug = front.slug
    if differing := {*FIELDS} ^ {*data}:
        raise ValueError(f"{slug}: missing or unknown are {sorted(differing)}")
    text = (folder / f"{slug}.md").read_text("utf8")
    sections = read_sections(text)
    core = {x.title: x for x in join_sections(sections, "core")}
    asked = read_predictions(folder / f"{slug}.ipynb")
    for field, known in (
        ("before", core),
        ("ask", {x for x in asked if x in core and x not in data["before"]}),
        ("in_class", entries),
        ("at_home", {x for x in entries if x not in data["in_class"]}),
    ):
        if unknown := [x for x in data[field] if x not in known]:
            raise ValueError(
                f"{slug}: `{field}` names {unknown}, and has to choose from "
                f"{sorted(known)}"
            )
    lesson = Lesson(
        front,
        data["opening"],
        tuple(core[x] for x in data["before"]),
        tuple(x for x in core.values() if x.title not in data["before"]),
        {x: asked[x] for x in data["ask"]},
        tuple(entries[x] for x in data["in_class"]),
        tuple(entries[x] for x in data["at_home"]),
        tuple(join_sections(sections, "deeper")),
    )
    if lesson.pace < 1:
        raise ValueError(
            f"{slug}: {lesson.time_for_sections} minutes are left for "
            f"sections, less than reading them takes"
        )
    return lesson


def join_sections(sections: Iterable[Section], kind: str) -> list[Section]:
    """Return sections of the second level with their subsections of a kind.

    Subsections of another kind are left out, and so is a chapter's opening.
    """
    found: list[Section] = []
    for x in sections:
        if x.level == 2 and x.title:
            found.append(replace(x))
        elif x.level == 3 and x.kind == kind == found[-1].kind:
            found[-1].words += x.words
            found[-1].cells += x.cells
    return [x for x in found if x.kind == kind]


def read_predictions(path: Path) -> dict[str, str]:
    """Return what a notebook asks to predict, by its section's title."""
    title, found = "", {}
    for cell in json.loads(path.read_text("utf8"))["cells"]:
        if cell["cell_type"] == "markdown":
            headings = re.findall(r"(?m)^## +(.*)$", "".join(cell["source"]))
            title = MARK.sub("", headings[-1]) if headings else title
        for output in cell.get("outputs", []):
            text = "".join(output.get("data", {}).get("text/plain", ""))
            if stated := STATED.match(" ".join(text.split())):
                prompt, choices, limits = stated.groups()
                each = re.split(r" [b-f]\) ", choices or "")
                # As written in the code, which has formulas, if it is a text.
                written = read_call("".join(cell["source"]))
                prompt, each = written or (prompt, each)
                found.setdefault(title, write_question(prompt, each, limits))
    return found


def read_call(source: str) -> tuple[str, list[str]] | None:
    """Return prompt and choices of a prediction, as a cell's code has them.

    None if they are computed. A number that is predicted has no choices.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in CALLS:
            with suppress(ValueError):
                prompt, *rest = node.args
                choices = [text for x in rest for text in read_choices(x)]
                return ast.literal_eval(prompt), choices
    return None


def read_choices(node: ast.expr) -> list[str]:
    """Return the texts of choices, without what is said of them afterwards.

    Raises:
        ValueError: if they are computed.
    """
    if not isinstance(node, ast.List):
        raise ValueError(f"{ast.unparse(node)} is no list of choices")
    pairs = [x for x in node.elts if isinstance(x, ast.Tuple)]
    return [ast.literal_eval(x.elts[0]) for x in pairs]


def write_question(prompt: str, choices: list[str], limits: str | None) -> str:
    """Return a question with its choices, or the limits of a number."""
    if limits:
        return f"{prompt} ({limits})"
    return f"{prompt} *{' · '.join(x.rstrip('.') for x in choices)}*"


def count_minutes(entries: Iterable[Entry]) -> int:
    """Return the minutes of exercises together."""
    return sum(entry.exercise.minutes for entry in entries)


def write_exercise(entry: Entry) -> str:
    """Return a link to an exercise, with its stars."""
    stars = "★" * entry.exercise.stars
    return f"[{entry.exercise.title}]({make_anchor(entry)}) {stars}"


@cache
def read_table() -> dict:
    """Return what `lessons.toml` holds."""
    return tomllib.loads(TABLE.read_text("utf8"))


def write_lessons() -> str:
    """Return the lessons, each with its table and what is done at home."""
    return "\n\n".join(map(write_lesson, read_lessons(read_table()).values()))


def write_step(step: Step) -> str:
    """Return what is done in a step, and the question before it."""
    return f"{step.what} **Ask:** {step.ask}" if step.ask else step.what


def write_lesson(lesson: Lesson) -> str:
    """Return a lesson as a heading, a table and what is done at home."""
    front = lesson.front
    rows = [f"| {x.minutes} | {write_step(x)} |" for x in lesson.plan()]
    before = "; ".join(
        f"[{x.title}]({front.slug}.ipynb#{x.anchor})" for x in lesson.before
    )
    after = "; ".join(
        f"{write_exercise(x)} {x.exercise.minutes}" for x in lesson.at_home
    )
    reading = max(1, round(sum(x.minutes for x in lesson.before)))
    unit = "minute" if reading == 1 else "minutes"
    label = f"Chapter {front.number}. {front.title}"
    return "\n".join(
        [
            f"### {label}",
            "",
            "| minutes | what, and what to ask aloud |",
            "|---|---|",
            *rows,
            "",
            f"- *At home before*, {reading} {unit}: {before}.",
            f"- *At home after*, {count_minutes(lesson.at_home)} minutes: {after}.",
        ]
    )
