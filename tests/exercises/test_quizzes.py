"""Quizzes: right as data, readable without JavaScript, and safe as HTML."""

import json
import re
import subprocess
import sys

import pytest

from attnbook.exercises.quiz import (
    FOLDER,
    Choice,
    Question,
    Quiz,
    format_inline,
    quiz,
    split_segments,
)

pytestmark = pytest.mark.precision

NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_quiz_is_valid(name):
    found = quiz(name)
    assert len({question.right for question in found.questions}) > 1
    for question in found.questions:
        texts = [choice.text for choice in question.choices]
        assert len(set(texts)) == len(texts) <= 5
        for i, choice in enumerate(question.choices):
            assert (choice.misconception is None) == (i == question.right)
            for text in question.prompt, choice.text, choice.feedback:
                assert text and not text.count("$") % 2 and not text.count("`") % 2


@pytest.mark.parametrize("name", NAMES)
def test_a_quiz_can_be_read_without_javascript(name):
    found = quiz(name)
    html = found._repr_mimebundle_()["text/html"]
    state, shown = re.search(r'json">(.*?)</script>(.*)</div>', html, re.S).groups()
    assert json.loads(state) == found.state() and "<" not in state
    assert shown.count("<details>") == len(found.questions)
    for question in found.questions:
        for text in [question.prompt, *(x.text for x in question.choices)]:
            assert format_inline(text) in shown


@pytest.mark.parametrize("name", NAMES)
def test_the_plain_text_has_questions_first_and_answers_last(name):
    found = quiz(name)
    *body, last = repr(found).splitlines()
    assert body[0] == found.title
    letters = ["abcde".index(answer[1]) for answer in last.split()[1:]]
    assert letters == [question.right for question in found.questions]


def test_segments_keep_every_character_in_order():
    assert split_segments("if $a < b$ then `a - b`.") == [
        {"text": "if "},
        {"math": "a < b"},
        {"text": " then "},
        {"code": "a - b"},
        {"text": "."},
    ]


def test_no_text_can_become_markup():
    evil = "</script><script>alert(1)</script> & `<b>` $<i>$"
    question = Question(evil, (Choice("yes", evil), Choice(evil, "no", "x")), 0)
    html = Quiz("evil", evil, (question,))._repr_mimebundle_()["text/html"]
    assert html.count("<script") == 1
    assert "<b>" not in html and "<i>" not in html


@pytest.mark.refusal
def test_an_unknown_quiz_names_the_known_ones():
    with pytest.raises(ValueError, match=r"no quiz '99_no'; .*01_bottleneck"):
        quiz("99_no")


def test_a_quiz_needs_no_torch():
    code = (
        "import sys; from attnbook.exercises.quiz import quiz\n"
        "quiz('01_bottleneck')._repr_mimebundle_()\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
