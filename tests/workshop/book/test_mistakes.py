"""The page of named mistakes, and the names that other pages quote from it."""

import re
from pathlib import Path

import pytest

from workshop.book.mistakes import list_entries, write_mistakes

CHAPTERS = Path(__file__).parents[3] / "chapters"
ENTRIES = list(list_entries())


def test_the_page_is_fresh():
    stored = (CHAPTERS / "mistakes.md").read_text("utf8")
    assert stored == write_mistakes(), "run `make pages`"


PAGE = (CHAPTERS / "misconceptions.md").read_text("utf8")
CAUGHT = re.findall(r"(?s)\*The exercise that catches it\.\*(.*?)(?:\n##|\Z)", PAGE)


@pytest.mark.parametrize("text", CAUGHT)
def test_a_misconception_names_a_check_and_mistakes_that_it_knows(text):
    chapter = re.search(r"(\d\d_\w+)\.ipynb", text)[1]
    check = re.search(r"`(check_\w+)`", text)[1]
    known = {
        mistake.slug
        for entry in ENTRIES
        if (entry.chapter, entry.name) == (chapter, check)
        for mistake in entry.exercise.mistakes
    }
    assert {*re.findall(r"`([a-z]+(?:-[a-z]+)*)`", text)} <= known
