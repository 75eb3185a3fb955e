"""Folded solutions in the chapters are the tested ones, and none is missing."""

import re
from pathlib import Path

import pytest

from attnbook.exercises import before_you_start
from workshop.book.solutions import (
    find_exercises,
    refresh_solutions,
    write_solution,
)

pytestmark = pytest.mark.precision

CHAPTERS = sorted((Path(__file__).parents[3] / "chapters").glob("[0-9][0-9]_*.md"))
STUB = re.compile(r"raise NotImplementedError\n+(check_\w+)\(\w+\)\n```")
STALE = """from attnbook.exercises.before_you_start import check_softmax

<details>
<summary>Solution of <code>check_softmax</code></summary>

an older one

</details>
"""


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda p: p.stem)
def test_solutions_in_the_chapter_are_the_tested_ones(chapter):
    text = chapter.read_text("utf8")
    assert refresh_solutions(text) == text, (
        f"run: python -m workshop.book.solutions chapters/{chapter.name}"
    )


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda p: p.stem)
def test_stars_and_minutes_are_those_of_the_exercise(chapter):
    text = chapter.read_text("utf8")
    for name in STUB.findall(text):
        exercise = find_exercises(text)[name]
        message = f"{'★' * exercise.stars} · {exercise.minutes} minutes"
        before = text[: text.index(f"{name}(my")]
        assert re.findall(r"★+ · \d+ minutes", before)[-1] == message, name


def test_a_stale_solution_is_replaced():
    fresh = refresh_solutions(STALE)
    assert "an older one" not in fresh
    assert write_solution("check_softmax", before_you_start.check_softmax) in fresh
    assert "def softmax(" in fresh
    assert refresh_solutions(fresh) == fresh


@pytest.mark.refusal
def test_a_solution_without_an_exercise_is_refused():
    stale = STALE.replace(
        "Solution of <code>check_softmax", "Solution of <code>check_sofmax"
    )
    with pytest.raises(ValueError, match=r"check_sofmax .*check_softmax"):
        refresh_solutions(stale)
