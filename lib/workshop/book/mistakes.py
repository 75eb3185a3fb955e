"""The page of named mistakes: by exercise, and where each one first shows."""

from itertools import groupby

from attnbook.exercises.mistake import Mistake
from attnbook.exercises.verdict import COMMON, OTHERWISE, join_sentences
from workshop.book.catalogue import (
    Entry,
    describe_symptom,
    list_entries,
    make_anchor,
)

HEAD = """# Named mistakes

This appendix lists every wrong answer that an exercise knows by name, under the
exercise that it belongs to. [Misconceptions](misconceptions.md) explains twenty
beliefs from which some of them follow.

A check tries its inputs from the simplest to the hardest. The last column says
on which input a mistake first shows; on all inputs before it, the answer is
right. Unless the column says more, the answer has wrong numbers there. Ordinary
tests miss the mistakes that show late.

The name in code is the verdict's `mistake`, which the
[grading command](teaching.md#grading) writes into its table.

"""
USUAL = ": wrong numbers"
BY_ROUNDING = "on an input where rounding shows; which one depends on the processor"


def write_mistakes() -> str:
    """Return the page."""
    parts = [HEAD]
    for chapter, group in groupby(list_entries(), key=lambda x: x.chapter):
        parts.append(f"## [Chapter {int(chapter[:2])}]({chapter}.ipynb)\n")
        parts += map(write_exercise, group)
    parts.append(write_common_mistakes())
    return "\n".join(parts)


def write_exercise(entry: Entry) -> str:
    """Return an exercise's mistakes as a table under its title."""
    title = entry.exercise.title
    rows = [
        f"### {title[:1].upper()}{title[1:]}",
        "",
        f"Checked by [`{entry.name}`]({make_anchor(entry)}).",
        "",
        "| mistake | what it is | first shows |",
        "|---|---|---|",
    ]
    for mistake in entry.exercise.mistakes:
        cells = (
            f"**{mistake.title}** `{mistake.slug}`",
            write_sentence(mistake.because),
            describe_first_input(entry, mistake),
        )
        rows.append("| " + " | ".join(map(escape_cell, cells)) + " |")
    return "\n".join(rows) + "\n"


def describe_first_input(entry: Entry, mistake: Mistake) -> str:
    """Return where a mistake first shows, the same on every machine."""
    if mistake.by_rounding:
        return BY_ROUNDING
    return describe_symptom(entry.exercise, mistake).removesuffix(USUAL)


def write_common_mistakes() -> str:
    """Return what any exercise can meet."""
    rows = [
        "## In any exercise",
        "",
        "| mistake | what a check says |",
        "|---|---|",
    ]
    blanks = dict.fromkeys(("what", "seen", "right", "pair"), "…")
    for slug, (seen, usual) in COMMON.items():
        likely = usual or OTHERWISE.get(slug, "")
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
