"""The pictures of the README: their verdicts are computed, not typed."""

from pathlib import Path

import pytest
from PIL import Image

from workshop.book.screenshots import RIGHT, WRONG, run_cell, write_cells

ROOT = Path(__file__).parents[3]
IMAGES = ROOT / "chapters/images"


def test_the_wrong_answer_is_named_and_the_right_one_accepted():
    wrong, right = run_cell(WRONG), run_cell(RIGHT)
    assert wrong.startswith("✗ Tried ")
    assert "the softmax runs along each column" in wrong
    assert right.startswith("✓ right")


def test_an_unsolved_answer_gets_another_verdict():
    code = "def f(x):\n    raise NotImplementedError\ncheck_softmax(f)"
    assert run_cell(code).startswith("… not attempted")


def test_the_cells_show_code_and_verdicts():
    made = write_cells([WRONG, RIGHT], "book.css")
    assert made.count('class="cell"') == 2
    assert "✗ Tried" in made and "✓ right" in made


@pytest.mark.parametrize("name", ["page", "widget", "verdict"])
def test_each_picture_is_sharp_and_light(name):
    path = IMAGES / f"{name}.png"
    with Image.open(path) as image:
        assert image.width >= 700
    assert path.stat().st_size < 70_000


@pytest.mark.parametrize(
    "page, names",
    [
        ("README.md", ["page", "widget", "verdict"]),
        # The first page has a widget that works.
        ("chapters/index.md", ["page", "verdict"]),
    ],
)
def test_readme_and_first_page_show_the_pictures(page, names):
    text = (ROOT / page).read_text("utf8")
    assert all(f"images/{name}.png)" in text for name in names)
