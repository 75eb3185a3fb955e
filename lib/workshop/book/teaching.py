"""The generated parts of the teaching guide, from lessons to diagrams."""

import re
from collections import Counter, defaultdict
from itertools import groupby
from pathlib import Path

from attnbook.exercises.exercise import Exercise
from workshop.book.catalogue import list_entries
from workshop.book.diagrams import write_diagrams
from workshop.book.lessons import write_lessons
from workshop.book.syllabi import write_syllabi

PAGE = Path("chapters/teaching.md")
OFTEN = 4  # exercises that know a mistake, for it to be listed


def write_teaching_guide() -> str:
    """Return the guide with its tables fresh."""
    text = PAGE.read_text("utf8")
    for name, table in (
        ("lessons", write_lessons()),
        ("syllabi", write_syllabi()),
        ("exercises", write_timings()),
        ("slugs", write_common_mistakes()),
        ("diagrams", write_diagrams()),
    ):
        marks = rf"(<!-- {name}: begin -->\n).*?(<!-- {name}: end -->)"
        # Formulas in a table have backslashes.
        fresh = table.replace("\\", r"\\")
        fresh = rf"\1\n{fresh}\n\n\2"
        text = re.sub(marks, fresh, text, flags=re.DOTALL)
    return text


def write_timings() -> str:
    """Return the exercises of each chapter with their stars and minutes."""
    rows = ["| chapter | exercises | minutes |", "|---|---|---|"]
    for chapter, group in groupby(list_entries(), key=lambda x: x.chapter):
        found = [entry.exercise for entry in group]
        each = "; ".join(f"{x.title} {'★' * x.stars} {x.minutes}" for x in found)
        total = sum(x.minutes for x in found)
        link = f"[{int(chapter[:2])}]({chapter}.ipynb)"
        rows.append(f"| {link} | {each} | {total} |")
    return "\n".join(rows)


def write_common_mistakes() -> str:
    """Return the mistakes that most exercises know.

    A title belongs to its exercise: one slug may have several.
    """
    known = defaultdict(lambda: defaultdict(list))
    for name, exercise in name_exercises():
        for mistake in exercise.mistakes:
            known[mistake.slug][mistake.title].append(name)
    rows = ["| mistake | what it is, and the exercises whose checks name it |"]
    rows.append("|---|---|")
    for slug, titles in sorted(
        known.items(), key=lambda x: (-count_exercises(x[1]), x[0])
    ):
        if count_exercises(titles) >= OFTEN:
            each = (f"{x}: {', '.join(titles[x])}" for x in titles)
            rows.append(f"| `{slug}` | {'; '.join(each)} |")
    return "\n".join(rows)


def name_exercises() -> list[tuple[str, Exercise]]:
    """Return every exercise after the name of its check, without `check_`.

    The chapter's number is added where several chapters have this check.
    """
    entries = list(list_entries())
    counts = Counter(entry.name for entry in entries)
    found = []
    for entry in entries:
        name = entry.name.removeprefix("check_")
        if counts[entry.name] > 1:
            name += f" ({int(entry.chapter[:2])})"
        found.append((name, entry.exercise))
    return found


def count_exercises(titles: dict[str, list[str]]) -> int:
    """Return how many exercises know a mistake, under any title."""
    return sum(map(len, titles.values()))
