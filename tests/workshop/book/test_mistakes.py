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


def test_the_page_names_no_input_for_a_mistake_that_rounding_shows():
    """The input differs between processors, and the page is one for all."""
    (entry,) = (x for x in ENTRIES if x.name == "check_decoder_fault")
    marked = [x for x in entry.exercise.mistakes if x.by_rounding]
    assert [x.slug for x in marked] == ["exact-comparison"]
    (row,) = (
        line
        for line in mistakes.write_exercise(entry).splitlines()
        if "`exact-comparison`" in line
    )
    assert row.endswith(f"| {mistakes.BY_ROUNDING} |")


def test_the_rest_of_the_page_is_fresh(monkeypatch):
    def drop_rows(page):
        return [x for x in page.splitlines() if not x.startswith("| **")]

    monkeypatch.setattr(mistakes, "describe_symptom", lambda *_: "")
    stored = PAGE.read_text("utf8")
    assert drop_rows(mistakes.write_mistakes()) == drop_rows(stored)
    assert stored.count("\n| **") == mistakes.write_mistakes().count("\n| **")
