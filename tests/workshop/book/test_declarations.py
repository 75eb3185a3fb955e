"""A declaration that lacks a part is named with its file and line."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from workshop.book.declarations import find_incomplete, require_complete

LIBRARY = Path(__file__).parents[3] / "lib"
FOLDERS = ("attnbook/exercises", "attnbook/widgets", "workshop/experiments")


def library(tmp_path, **sources):
    """Return a library with one module in each folder; sources by folder."""
    for folder in FOLDERS:
        (tmp_path / "lib" / folder).mkdir(parents=True)
    (tmp_path / "lib/attnbook/records/json").mkdir(parents=True)
    for folder, source in sources.items():
        (place,) = (x for x in FOLDERS if x.endswith(folder))
        (tmp_path / "lib" / place / "new.py").write_text(source)
    return tmp_path / "lib"


def test_every_declaration_of_the_book_is_complete():
    assert find_incomplete(LIBRARY) == []


@pytest.mark.parametrize(
    ("folder", "source", "message"),
    [
        (
            "exercises",
            'x = 1\nMistake("no-scale", "not divided", f)',
            "new.py:2: the mistake 'no-scale' has 3 of its parts slug, title",
        ),
        (
            "experiments",
            "@experiment()\ndef count_words():\n    return {}\n",
            "new.py:2: the experiment 'count_words' has no record",
        ),
        (
            "widgets",
            "class Explorer(BookWidget):\n    def state(self): ...\n",
            "new.py:1: the widget 'Explorer' has no method fallback",
        ),
    ],
)
def test_an_incomplete_declaration_stops_the_build(tmp_path, folder, source, message):
    errors = pytest.importorskip("sphinx.errors")
    (found,) = find_incomplete(library(tmp_path, **{folder: source}))
    assert message in found
    with pytest.raises(errors.ExtensionError) as raised:
        require_complete(SimpleNamespace(srcdir=str(tmp_path)))
    assert message in str(raised.value)


def test_complete_declarations_are_accepted(tmp_path):
    place = library(
        tmp_path,
        exercises='Mistake("a", "b", "c", f)\nMistake(*parts)',
        experiments="@experiment()\ndef count_words():\n    return {}\n",
        widgets="class Explorer(BookWidget):\n    def fallback(self): ...\n",
    )
    (place / "attnbook/records/json/count_words.json").write_text("{}")
    assert find_incomplete(place) == []
