"""The ticks of the exercises: set by the reader, kept, shown, never sent.

`make book` comes first.
"""

import re

import pytest

from built_pages import CHAPTERS, HTML

pytestmark = pytest.mark.browser
SLUG = "04_scaled_dot_product"
NAME = f"chapters/{SLUG}.html"
MARK = f'.menu [data-chapter="{SLUG}"] .ticked'


def count_exercises(name):
    """Return how many exercises a page lists."""
    page = (HTML / name).read_text("utf8")
    return len(re.findall(r"<h3>Exercise \d", page))


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_exercise_has_a_labelled_checkbox(visits, name):
    assert visits("http", name)["ticks"] == count_exercises(name) > 0


def test_a_ticked_checkbox_is_stored_and_counted_in_the_list_of_chapters(
    opened,
):
    page = opened(NAME)
    assert not page.query_selector(MARK)
    boxes = page.locator("label.tick input")
    boxes.nth(0).check()
    boxes.nth(2).focus()
    page.keyboard.press("Space")
    assert page.text_content(MARK) == f"✓ 2/{count_exercises(NAME)}"
    page.reload()
    assert [boxes.nth(i).is_checked() for i in range(3)] == [True, False, True]
    other = next(x for x in CHAPTERS if x != NAME)
    page.goto(page.url.replace(NAME, other))
    assert page.text_content(MARK) == f"✓ 2/{count_exercises(NAME)}"
    page.go_back()
    boxes.nth(0).uncheck()
    boxes.nth(2).uncheck()
    assert not page.query_selector(MARK)
    assert not page.wrong


@pytest.mark.parametrize(
    "spoiled",
    [
        "{",
        "null",
        "[]",
        "3",
        f'{{"{SLUG}": 3}}',
        f'{{"{SLUG}": {{"done": 1}}}}',
    ],
)
def test_corrupt_local_storage_is_ignored(opened, spoiled):
    page = opened(NAME)
    page.evaluate("text => localStorage.setItem('exercises', text)", spoiled)
    page.reload()
    page.locator("label.tick input").nth(1).check()
    assert page.text_content(MARK) == f"✓ 1/{count_exercises(NAME)}"
    assert not page.wrong
