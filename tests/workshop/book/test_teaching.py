"""The tables of the teaching guide."""

import re
import shlex
from pathlib import Path

import pytest

from attnbook.grade import command
from workshop.book import teaching
from workshop.book.catalogue import list_entries


def read_rows():
    """Return each slug's exercises by title, as the table shows them."""
    lines = [
        line for line in teaching.write_common_mistakes().splitlines() if "`" in line
    ]
    found = {}
    for line in lines:
        slug, each = line.strip("| ").split(" | ")
        pairs = (part.rsplit(": ", 1) for part in each.split("; "))
        found[slug.strip("`")] = {title: names.split(", ") for title, names in pairs}
    return found


def test_every_exercise_is_listed_under_its_own_title_of_a_mistake():
    names = [entry.name for entry in list_entries()]
    own = {}
    for entry in list_entries():
        name = entry.name.removeprefix("check_")
        if names.count(entry.name) > 1:
            name += f" ({int(entry.chapter[:2])})"
        for mistake in entry.exercise.mistakes:
            own[mistake.slug, name] = mistake.title
    assert ("counted-from-one", "attention_fault (5)") in own
    rows = read_rows()
    listed = {
        (slug, name): title
        for slug, titles in rows.items()
        for title, names in titles.items()
        for name in names
    }
    assert listed == {key: own[key] for key in own if key[0] in rows}


def test_only_mistakes_that_several_exercises_know_are_listed():
    counts = {
        slug: sum(map(len, titles.values())) for slug, titles in read_rows().items()
    }
    assert counts and min(counts.values()) >= teaching.OFTEN
    assert any(len(titles) > 1 for titles in read_rows().values())


COMMANDS = [
    shlex.split(found, comments=True)
    for page in ("README.md", "chapters/teaching.md")
    for found in re.findall(
        r"^\S*python -m attnbook\.grade (.+)$",
        Path(page).read_text("utf8").replace("\\\n", " "),
        re.MULTILINE,
    )
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_grader_takes_every_documented_command(words):
    number = "$SLURM_ARRAY_TASK_ID"
    options = command.parse_arguments([x.replace(number, "3") for x in words])
    assert options.notebook or options.merge


def test_every_option_of_the_grader_is_documented():
    text = Path("chapters/teaching.md").read_text("utf8")
    for action in command.make_parser()._actions:
        for name in action.option_strings:
            assert name in text or name in ("-h", "--help"), name
