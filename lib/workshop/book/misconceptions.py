"""The page of misconceptions: every named mistake, and what catches it."""

from itertools import groupby

from attnbook.exercises.verdict import COMMON, join_sentences
from workshop.book.catalogue import (
    Entry,
    describe_symptom,
    list_entries,
    make_anchor,
)

HEAD = """# Misconceptions

Every wrong answer that the exercises know by name: what it is, on which inputs
it first shows (before those, its numbers are right), and the exercise that
catches it. A check tries its inputs from the simplest to the hardest, so what
shows late goes unnoticed for long elsewhere, too.

"""


def write_misconceptions() -> str:
    """Return the page."""
    found = list(list_entries())
    parts = [HEAD]
    for chapter, group in groupby(found, key=lambda x: x.chapter):
        parts.append(write_section(chapter, list(group)))
    parts.append(write_common_mistakes())
    return "\n".join(parts)


def write_section(chapter: str, group: list[Entry]) -> str:
    """Return a chapter's mistakes as a table."""
    rows = [
        f"## [Chapter {int(chapter[:2])}]({chapter}.ipynb)",
        "",
        "| mistake | what it is | where it first shows | caught by |",
        "|---|---|---|---|",
    ]
    for entry in group:
        for mistake in entry.exercise.mistakes:
            cells = (
                f"**{mistake.title}** `{mistake.slug}`",
                write_sentence(mistake.because),
                describe_symptom(entry.exercise, mistake),
                f"[`{entry.name}`]({make_anchor(entry)})",
            )
            rows.append("| " + " | ".join(map(escape_cell, cells)) + " |")
    return "\n".join(rows) + "\n"


def write_common_mistakes() -> str:
    """Return what any exercise can meet."""
    rows = [
        "## In any exercise",
        "",
        "| mistake | what a check says |",
        "|---|---|",
    ]
    blanks = dict.fromkeys(("what", "seen", "right", "pair"), "…")
    for slug, (seen, likely) in COMMON.items():
        said = [seen.format(**blanks), likely and f"Most likely, {likely}"]
        sentence = escape_cell(join_sentences(said))
        rows.append(f"| **{slug.replace('-', ' ')}** `{slug}` | {sentence} |")
    return "\n".join(rows) + "\n"


def write_sentence(text: str) -> str:
    """Return a text that begins and ends as a sentence does."""
    stop = "" if text.endswith(("?", ".")) else "."
    # A symbol, such as ε, stays as it is.
    first = text[:1].upper() if text[:1].isascii() else text[:1]
    return first + text[1:] + stop


def escape_cell(text: str) -> str:
    """Return a text that does not end its cell."""
    return text.replace("|", "\\|")
