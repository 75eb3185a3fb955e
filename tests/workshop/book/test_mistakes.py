"""The page of named mistakes."""

from pathlib import Path

from workshop.book.mistakes import write_mistakes

PAGE = Path(__file__).parents[3] / "chapters/mistakes.md"


def test_the_page_is_fresh():
    assert PAGE.read_text("utf8") == write_mistakes(), "run `make pages`"
