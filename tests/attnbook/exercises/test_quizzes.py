"""Quizzes: right as data, readable without JavaScript, and safe as HTML."""

import copy
import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from attnbook.exercises import quiz as module
from attnbook.exercises.quiz import FOLDER, parse_quiz, quiz
from attnbook.exercises.quiz_text import format_inline, split_segments

pytestmark = pytest.mark.precision

NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
GOOD = {
    "title": "A quiz",
    "questions": [
        {
            "prompt": f"Question {i}: is $a_{i}$ < `b`?",
            "choices": [
                {"text": "yes", "feedback": "so it is"},
                {"text": "no", "feedback": "but", "misconception": "less"},
            ],
            "right": 0,
        }
        for i in range(4)
    ],
}


class Tags(HTMLParser):
    """Collects tags and text, and holds that every tag is closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.text, self.script = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        (self.script if "script" in self.open else self.text).append(data)


def parsed(a_quiz):
    tags = Tags()
    tags.feed(a_quiz._repr_mimebundle_()["text/html"])
    tags.close()
    assert not tags.open
    return tags


def test_there_is_a_quiz_for_each_chapter_so_far():
    assert NAMES[:3] == ["00_before_you_start", "01_bottleneck", "02_bahdanau"]


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_quiz_is_valid(name):
    found = quiz(name)
    assert found.name == name
    assert 4 <= len(found.questions) <= 6
    for question in found.questions:
        for i, choice in enumerate(question.choices):
            assert (choice.misconception is None) == (i == question.right)
            assert len(choice.feedback) > 20


@pytest.mark.parametrize("name", NAMES)
def test_the_position_of_the_right_choice_varies(name):
    assert len({question.right for question in quiz(name).questions}) > 1


@pytest.mark.parametrize("name", NAMES)
def test_the_state_in_the_page_is_the_quiz(name):
    tags = parsed(quiz(name))
    mount, script = tags.seen[0], tags.seen[1]
    assert mount == ("div", {"data-book-widget": "quiz"})
    assert script == ("script", {"type": "application/json"})
    (text,) = tags.script
    assert "<" not in text
    assert json.loads(text) == quiz(name).state()


@pytest.mark.parametrize("name", NAMES)
def test_a_quiz_can_be_read_without_javascript(name):
    found, tags = quiz(name), parsed(quiz(name))
    assert [tag for tag, _ in tags.seen].count("details") == len(found.questions)
    shown = "".join(tags.text)
    for question in found.questions:
        for text in [question.prompt, *(c.text for c in question.choices)]:
            for piece in split_segments(text):
                assert next(iter(piece.values())) in shown


@pytest.mark.parametrize("name", NAMES)
def test_the_plain_text_has_questions_first_and_answers_last(name):
    found = quiz(name)
    *body, last = repr(found).splitlines()
    assert body[0] == found.title
    assert re.fullmatch(r"Answers:( \d[a-e])+", last)
    letters = ["abcde".index(answer[1]) for answer in last.split()[1:]]
    assert letters == [question.right for question in found.questions]
    assert max(map(len, body)) <= 76
    assert found._repr_mimebundle_()["text/plain"] == repr(found)


def test_segments_keep_every_character_in_order():
    text = "if $a < b$ then `a - b` is $< 0$."
    assert split_segments(text) == [
        {"text": "if "},
        {"math": "a < b"},
        {"text": " then "},
        {"code": "a - b"},
        {"text": " is "},
        {"math": "< 0"},
        {"text": "."},
    ]
    assert split_segments("") == []


def test_no_text_can_become_markup():
    evil = "</script><script>alert(1)</script> & `<b>` $<i>$"
    data = copy.deepcopy(GOOD)
    data["title"] = data["questions"][0]["prompt"] = evil
    tags = parsed(parse_quiz("evil", data))
    names = {tag for tag, _ in tags.seen}
    assert names.isdisjoint({"b", "i"})
    assert [tag for tag, _ in tags.seen].count("script") == 1
    assert "alert(1)" in "".join(tags.text)
    assert format_inline("$<i>$") == r'<span class="math">\(&lt;i&gt;\)</span>'


def broken(change):
    data = copy.deepcopy(GOOD)
    change(data, data["questions"][1], data["questions"][1]["choices"])
    return data


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d, q, c: d.pop("title"), "should have ['questions', 'title']"),
        (lambda d, q, c: d.update(titel="x"), "has the fields"),
        (lambda d, q, c: d.update(title=""), "`title` is ''"),
        (lambda d, q, c: d["questions"].pop(), "has 3 questions"),
        (lambda d, q, c: d.update(questions={}), "should be a list"),
        (lambda d, q, c: d["questions"].__setitem__(0, 7), "not an object"),
        (lambda d, q, c: q.update(right=2), "question 2: `right` is 2"),
        (lambda d, q, c: q.update(right=-1), "numbered 0 to 1"),
        (lambda d, q, c: q.update(right=True), "should be a int"),
        (lambda d, q, c: q.update(right="a"), "`right` is 'a'"),
        (lambda d, q, c: c.pop(), "has 1 choices"),
        (lambda d, q, c: c[1].pop("misconception"), "question 2, choice 1"),
        (lambda d, q, c: c[0].update(misconception="x"), "has the fields"),
        (lambda d, q, c: c[1].pop("feedback"), "question 2, choice 1"),
        (lambda d, q, c: c[1].update(feedback=""), "`feedback` is ''"),
        (lambda d, q, c: c[1].update(text="yes"), "same choice twice"),
        (lambda d, q, c: q.update(prompt="what is $x?"), "unclosed $ or `"),
        (lambda d, q, c: c[0].update(feedback="`x"), "unclosed $ or `"),
    ],
)
def test_a_broken_quiz_is_refused_in_one_sentence(change, words):
    with pytest.raises(ValueError, match=re.escape(words)) as refusal:
        parse_quiz("test", broken(change))
    assert "quiz test" in str(refusal.value)


@pytest.mark.refusal
def test_data_that_is_not_an_object_is_refused():
    with pytest.raises(ValueError, match="quiz test is not an object but"):
        parse_quiz("test", ["a", "list"])


@pytest.mark.refusal
def test_bad_json_and_bad_text_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    (tmp_path / "cut.json").write_text('{"title": "A quiz", "ques')
    with pytest.raises(ValueError, match="quiz cut is not JSON: Unterm"):
        quiz("cut")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="quiz bytes is not JSON"):
        quiz("bytes")


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
