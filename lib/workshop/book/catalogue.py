"""Every exercise and every named mistake, gathered from their declarations.

A mistake's slug, title, sentence and wrong answer are declared with its
exercise. The page of named mistakes and the page of messages are made from
here.
"""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from attnbook import exercises
from attnbook.exercises.cached_outcomes import list_outcomes
from attnbook.exercises.difference import find_difference
from attnbook.exercises.exercise import FIRST, Exercise
from attnbook.exercises.guard import preserve_state
from attnbook.exercises.mistake import Mistake
from attnbook.exercises.verdict import COMMON, OTHERWISE, join_sentences
from workshop.book import sections
from workshop.chapters import require_chapter

SHOWS = {
    "numbers": "wrong numbers",
    "shape": "another shape",
    "length": "another length",
    "type": "another kind of thing",
    "dtype": "another precision",
    "nan": "NaN",
    "gradient": "right numbers, wrong gradient",
    "detached": "right numbers, no gradient",
    "error": "an error",
    "changed-input": "a changed input",
    "none": "None",
}


@dataclass(frozen=True)
class Entry:
    """An exercise with the names by which it is found.

    Attributes:
        module: its chapter's module among the exercises.
        chapter: the chapter's file name without ending.
        name: the check's name.
        exercise: the exercise itself.
    """

    module: str
    chapter: str
    name: str
    exercise: Exercise


def list_entries() -> Iterator[Entry]:
    """Yield every exercise, chapter by chapter."""
    found = []
    for info in pkgutil.iter_modules(exercises.__path__):
        if info.ispkg:
            module = importlib.import_module(f"{exercises.__name__}.{info.name}")
            chapter = require_chapter(module.__name__)
            found.append((chapter, info.name, module))
    for chapter, name, module in sorted(found, key=lambda x: x[0]):
        order = [x for x in vars(module) if x in module.__all__]
        for check in sort_by_position(chapter, order):
            yield Entry(name, chapter, check, getattr(module, check))


def sort_by_position(chapter: str, checks: list[str]) -> list[str]:
    """Return a chapter's checks in the order in which it asks them."""
    path = Path("chapters") / f"{chapter}.md"
    text = path.read_text("utf8") if path.exists() else ""
    _, found, rest = text.partition("\n## Exercises\n")
    rest = rest if found else text
    return sorted(checks, key=lambda x: (rest.find(f"{x}("), x))


def make_anchor(entry: Entry) -> str:
    """Return the address of the heading under which a check is asked."""
    path = Path("chapters") / f"{entry.chapter}.md"
    text = path.read_text("utf8")
    end = text.find(f"{entry.name}(", text.find("\n## Exercises\n") + 1)
    heading = re.findall(r"^##+ (.+)$", text[: max(end, 0)], re.M)[-1:]
    if not heading:
        return f"{entry.chapter}.ipynb"
    return f"{entry.chapter}.ipynb#{sections.make_anchor(heading[0])}"


def describe_symptom(exercise: Exercise, mistake: Mistake) -> str:
    """Return where a mistake first shows, and as what."""
    with preserve_state():
        cases = exercise.draw_cases(FIRST)
        found, right = (
            list_outcomes(exercise.draw, answer, FIRST)
            for answer in (mistake.answer, exercise.solution)
        )
        for nth, (case, *pair) in enumerate(zip(cases, found, right, strict=True)):
            got, want = map(exercise.compare_by, pair)
            names = ("",) * len(case.inputs)
            roundings = exercise.make_roundings(FIRST, nth)
            finding = find_difference(got, want, names, exercise.returns, roundings)
            if finding and case.asked and not finding.harmless:
                return f"{case.tries}: {SHOWS[finding.slug]}"
    return "on fresh inputs"


def write_messages() -> str:
    """Return everything that a check can say, to be read as an editor would."""
    lines = ["# What the checks say", "", "## Any exercise", ""]
    for slug, (seen, usual) in COMMON.items():
        likely = usual or OTHERWISE.get(slug, "")
        said = join_sentences([seen, likely and f"Most likely, {likely}"])
        lines.append(f"- `{slug}`: {said}")
    for entry in list_entries():
        lines += ["", f"## {entry.chapter}: {entry.name}", ""]
        for mistake in entry.exercise.mistakes:
            verdict = entry.exercise(mistake.answer, 5)
            lines.append(f"- `{mistake.slug}`: {verdict.message}")
        for remark in entry.exercise.remarks:
            verdict = entry.exercise(remark.answer, 5, own=False)
            lines.append(f"- `{remark.slug}`: {verdict!r}")
        for step in (1, 2, 3):
            lines.append(f"- {entry.exercise.hint(step)!r}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(write_messages(), end="")
