"""Lessons of 90 minutes, and the syllabi made of them."""

import re
from copy import deepcopy
from pathlib import Path

import pytest

from workshop.book.lessons import (
    CLOSING,
    LESSON,
    OPENING,
    join_sections,
    read_call,
    read_lessons,
    read_predictions,
    read_table,
    round_shares,
)
from workshop.book.misconceptions import PAGE, read_misconceptions
from workshop.book.sections import compute_core_minutes, read_sections
from workshop.book.syllabi import count_lab, fill_about, write_syllabus

pytestmark = [
    pytest.mark.exact("reads sources and pages, and compares texts"),
    pytest.mark.precision,
]

CHAPTERS = Path("chapters")
LESSONS = read_lessons(read_table())
each_lesson = pytest.mark.parametrize("slug", LESSONS)


def test_every_chapter_has_a_lesson():
    slugs = {path.stem for path in CHAPTERS.glob("[0-9][0-9]_*.md")}
    assert {*LESSONS} == slugs and len(slugs) >= 12


@each_lesson
def test_a_lesson_takes_90_minutes(slug):
    plan = LESSONS[slug].plan()
    assert sum(step.minutes for step in plan) == LESSON == 90
    assert (plan[0].minutes, plan[-1].minutes) == (OPENING, CLOSING)
    assert min(step.minutes for step in plan) >= 1


@each_lesson
def test_every_core_section_is_taught_or_read_before(slug):
    lesson = LESSONS[slug]
    text = (CHAPTERS / f"{slug}.md").read_text("utf8")
    titles = {x.title for x in join_sections(read_sections(text), "core")}
    assert titles == {x.title for x in (*lesson.before, *lesson.taught)}
    minutes = sum(x.minutes for x in (*lesson.before, *lesson.taught))
    assert minutes <= compute_core_minutes(text) < minutes + 3  # the opening


@each_lesson
def test_sections_get_time_in_proportion_and_exercises_what_they_declare(slug):
    lesson = LESSONS[slug]
    assert 1.5 <= lesson.pace <= 2.5
    steps = lesson.plan()[1:-1]
    taught, exercises = (
        steps[: len(lesson.taught)],
        steps[len(lesson.taught) :],
    )
    for step, section in zip(taught, lesson.taught, strict=True):
        asked = 2 * (section.title in lesson.questions)
        assert abs(step.minutes - lesson.pace * section.minutes - asked) <= 1
        assert bool(step.ask) == bool(asked)
    declared = [x.exercise.minutes for x in lesson.in_class]
    assert [step.minutes for step in exercises] == declared
    assert 20 <= sum(declared) <= 30


def test_predictions_are_asked_and_most_votes_are_misconceptions():
    assert sum(len(x.questions) for x in LESSONS.values()) >= 30
    assert all(x.questions for x in LESSONS.values())
    text = (CHAPTERS / PAGE).read_text("utf8")
    known = {one.belief.lower() for one in read_misconceptions(text)}
    votes = [
        x.opening.removeprefix("True or false: ").rstrip(".").lower()
        for x in LESSONS.values()
    ]
    assert sum(vote in known for vote in votes) >= 8


def test_a_prediction_is_read_with_its_choices_and_formulas():
    found = read_predictions(CHAPTERS / "02_bahdanau.ipynb")
    asked = found["The additive score"]
    assert asked.startswith("Remove $\\tanh$, so that the score is $v^\\top")
    assert asked.endswith("with $\\tanh$ · they are equal*")
    found = read_predictions(CHAPTERS / "07_masks.ipynb")
    asked = found["The leakage test: does the future change the past?"]
    assert "held-out words" in asked and asked.endswith(" (0 to 100)")


def test_a_prediction_that_is_computed_is_not_read_from_the_code():
    assert read_call('predict("a", [("b", "c")], right=0)') == ("a", ["b"])
    assert read_call('predict_number("a", low=0)') == ("a", [])
    assert read_call('predict(f"{a}", [("b", "c")])') is None
    assert read_call("predict(question, choices)") is None
    assert read_call('predict("a", choices)') is None
    assert read_call("1 + 1") is None


@pytest.mark.parametrize(
    ("shares", "total", "whole"),
    [
        ([2.5, 2.5], 5, [3, 2]),
        ([1.2, 3.9, 0.9], 6, [1, 4, 1]),
        ([0.1, 0.1, 9.8], 10, [1, 1, 8]),
        ([4.0], 4, [4]),
    ],
)
def test_shares_are_rounded_to_their_sum(shares, total, whole):
    assert round_shares(shares, total) == whole


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("before", ["Softmax"], r"01_bottleneck: `before` names \['Softmax'\]"),
        ("before", ["GRU and LSTM"], "`before` names"),  # a deeper section
        ("ask", ["Teacher forcing"], "`ask` names"),  # it has no prediction
        ("ask", ["GRU and LSTM"], "`ask` names"),
        (
            "in_class",
            ["check_softmax"],
            r"`in_class` names \['check_softmax'\]",
        ),
        ("at_home", ["check_error_rate"], "`at_home` names"),  # twice
        ("opening", None, r"01_bottleneck: missing or unknown are \['opening"),
        (
            "in_class",
            ["check_encoder_fault", "check_error_cause"],
            "01_bottleneck: 30 minutes are left for sections",
        ),
    ],
)
def test_a_lesson_with_a_mistake_is_refused_with_its_chapter(field, value, message):
    data = deepcopy(read_table())
    if value is None:
        del data["01_bottleneck"][field]
    else:
        data["01_bottleneck"][field] = value
    if message.endswith("sections"):
        data["01_bottleneck"]["at_home"] = []
    with pytest.raises(ValueError, match=message):
        read_lessons(data)


@pytest.mark.refusal
def test_a_chapter_without_a_lesson_is_named():
    data = {k: v for k, v in read_table().items() if k != "07_masks"}
    with pytest.raises(ValueError, match=r"\{'07_masks'\}"):
        read_lessons(data)


SYLLABI = {x["title"]: x for x in read_table()["syllabus"]}


def test_there_are_syllabi_of_one_four_and_fifteen_weeks():
    assert [*SYLLABI] == ["One week", "Four weeks", "Fifteen weeks"]
    counts = [sum(len(r["teach"]) for r in x["rows"]) for x in SYLLABI.values()]
    assert counts == [5, 8, 15]
    assert len(SYLLABI["Four weeks"]["rows"]) == 4
    fifteen = [r["teach"] for r in SYLLABI["Fifteen weeks"]["rows"]]
    assert fifteen == [[slug] for slug in sorted(LESSONS)]


def test_the_guide_says_how_much_longer_a_section_takes_in_class():
    paces = [lesson.pace for lesson in LESSONS.values()]
    text = " ".join((CHAPTERS / "teaching.md").read_text("utf8").split())
    assert "about twice as long in class" in text
    assert 1.8 <= sum(paces) / len(paces) <= 2.2
    low, high = re.search(r"between (\S+) and (\S+) times", text).groups()
    assert float(low) <= min(paces) and max(paces) <= float(high)


def test_what_a_syllabus_says_of_itself_follows_from_its_table():
    one, four = (
        fill_about(SYLLABI[title], LESSONS) for title in ("One week", "Four weeks")
    )
    assert "(chapters 3, 7, 10, 11, 12, 15 and 16)" in one
    assert "Three chapters are read at home" in one
    assert "the core of chapters 0, 3 and 10 at home" in four
    assert four.endswith("leaves out chapters 11, 12, 15 and 16.")
    fewer = deepcopy(SYLLABI["Four weeks"])
    del fewer["rows"][-1]["read"]
    four = fill_about(fewer, LESSONS)
    assert "the core of chapters 0 and 3 at home" in four
    assert four.endswith("leaves out chapters 10, 11, 12, 15 and 16.")


def test_a_lab_takes_its_deeper_sections_and_exercises():
    lesson = LESSONS["01_bottleneck"]
    row = {"when": "Week 1", "teach": ["01_bottleneck"]}
    exercises = sum(x.exercise.minutes for x in lesson.at_home)
    assert count_lab(row, LESSONS) == exercises
    read = lesson.deeper[0]
    assert count_lab(row | {"deeper": [read.title]}, LESSONS) == round(
        exercises + read.minutes
    )
    found = re.search(
        r"a lab of (\d+) to (\d+) minutes",
        write_syllabus(SYLLABI["Fifteen weeks"], LESSONS),
    )
    labs = [count_lab(x, LESSONS) for x in SYLLABI["Fifteen weeks"]["rows"]]
    assert (int(found[1]), int(found[2])) == (min(labs), max(labs))


@pytest.mark.parametrize("title", SYLLABI)
def test_a_syllabus_teaches_chapters_once_and_in_their_order(title):
    rows = SYLLABI[title]["rows"]
    taught = [slug for row in rows for slug in row["teach"]]
    assert taught == sorted({*taught})
    read = [slug for row in rows for slug in row.get("read", [])]
    assert not {*taught} & {*read}
    text = write_syllabus(SYLLABI[title], LESSONS)
    hours = f"{1.5 * len(taught):g} hours."
    assert text.endswith(hours)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"teach": ["12_none"]}, "Week 1: '12_none' is no chapter"),
        ({"read": ["12_none"]}, "Week 1: '12_none' is no chapter"),
        ({"deeper": ["Teacher forcing"]}, "'Teacher forcing' is no deeper"),
    ],
)
def test_a_row_with_a_mistake_is_named(change, message):
    row = {"when": "Week 1", "teach": ["01_bottleneck"]} | change
    data = {"title": "None", "about": "", "rows": [row]}
    with pytest.raises(ValueError, match=message):
        write_syllabus(data, LESSONS)
