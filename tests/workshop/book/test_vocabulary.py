"""The book uses the field's words wherever it is finished."""

from pathlib import Path

import pytest

from workshop.book.vocabulary import (
    TERMS,
    find_phrases,
    list_files,
    read_text,
    read_words,
)

pytestmark = pytest.mark.precision

ROOT = Path(__file__).parents[3]
FILES = [*list_files(ROOT)]


@pytest.mark.parametrize("name", FILES)
def test_the_fields_words_are_used(name):
    assert find_phrases(read_text(ROOT / name)) == []


@pytest.mark.parametrize(
    "text",
    [
        "The way past the sublayer",
        "On the way back, gradients",
        "Then comes the law.",
        "who may look where",
        "A position may not look ahead.",
        "a network that writes",
        "the norm after the sum",
        "a cut at zero",
        "12 % of words wrong",
        "what is remembered while decoding",
        "the likeness of two heads",
        "steady attention",
        "a mask: True = may\nlook",
    ],
)
def test_a_coined_phrase_is_found_with_the_fields_term(text):
    (said,) = find_phrases(text)
    assert said.rpartition(": write ")[2] in TERMS.values()


@pytest.mark.parametrize(
    "text",
    [
        "the law of large numbers",
        "You may also look at the map.",
        "the model writes a file",
        "normalize before each step",
        "strip the mark",
        "hidden layers, several heads, one text, a place",
        "an outlaw's way",
    ],
)
def test_ordinary_words_are_left_to_the_editor(text):
    assert find_phrases(text) == []


def test_widgets_declarations_and_written_pages_are_read():
    assert {
        "lib/workshop/book/glossary.toml",
        "lib/workshop/book/lessons.toml",
        "lib/workshop/book/cost_rows/02_bahdanau.toml",
        "lib/attnbook/widgets/alignment_player.js",
        "chapters/cheat_sheet.md",
        "chapters/evidence.md",
    } <= {*FILES}


def test_docstrings_and_messages_are_read():
    source = (
        'def f(x):\n    """Return the law."""\n'
        '    raise ValueError(f"{x} may not look at {x}")\n'
    )
    assert len(find_phrases(read_words(source))) == 2


def test_a_finished_chapter_is_read_with_its_modules_and_quiz(monkeypatch):
    own = {
        "lib/attnbook/attention/query_chunks.py",
        "chapters/10_cost.md",
        "lib/attnbook/exercises/quizzes/10_cost.json",
    }
    for unfinished in frozenset({"10_cost"}), frozenset():
        monkeypatch.setattr(
            "workshop.book.vocabulary.read_unfinished", lambda x=unfinished: x
        )
        assert own & {*list_files(ROOT)} == (frozenset() if unfinished else own)
