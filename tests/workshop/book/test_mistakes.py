"""The page of named mistakes, which no chapter's text can change."""

from pathlib import Path

import pytest

from workshop.book import mistakes
from workshop.book.catalogue import list_entries

PAGE = Path(__file__).parents[3] / "chapters/mistakes.md"
ENTRIES = list(list_entries())


@pytest.mark.long
@pytest.mark.numeric  # the checks of all exercises run
@pytest.mark.precision  # the hook would refuse some wrong answers first
@pytest.mark.parametrize("entry", ENTRIES, ids=[x.name for x in ENTRIES])
def test_an_exercise_has_its_table_on_the_page(entry):
    stored = PAGE.read_text("utf8")
    assert mistakes.write_exercise(entry) in stored, "run `make pages`"


def test_the_rest_of_the_page_is_fresh(monkeypatch):
    def drop_rows(page):
        return [x for x in page.splitlines() if not x.startswith("| **")]

    monkeypatch.setattr(mistakes, "describe_symptom", lambda *_: "")
    stored = PAGE.read_text("utf8")
    assert drop_rows(mistakes.write_mistakes()) == drop_rows(stored)
    assert stored.count("\n| **") == mistakes.write_mistakes().count("\n| **")
