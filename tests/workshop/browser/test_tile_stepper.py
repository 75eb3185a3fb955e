"""The tile stepper in a real browser: keys, mouse, bad input, a phone."""

import pytest

from attnbook.widgets.tile_stepper import TileStepper
from widget_examples import WIDE

pytestmark = pytest.mark.browser

STEM = "tile_stepper"


@pytest.fixture
def state():
    return TileStepper(step=0).state()


def read_status(page):
    return page.locator("[role=status]").inner_text()


def cells(page, name):
    return page.locator(f".ts-scores .{name}").count()


def test_a_step_is_shown_in_both_tables_and_described(shown, state):
    page = shown(state, STEM)
    assert read_status(page).startswith("Nothing is done yet. 9 tiles")
    assert (cells(page, "ts-now"), cells(page, "ts-done")) == (0, 0)
    page.click("text=Next tile")
    assert read_status(page).startswith("Step 1 of 9. Queries 0 to 1 meet keys 0 to 2")
    assert (cells(page, "ts-now"), cells(page, "ts-done")) == (6, 0)
    assert page.locator(".ts-runs .ts-row").count() == 2
    page.click("text=Next tile")
    assert (cells(page, "ts-now"), cells(page, "ts-done")) == (6, 6)
    third = page.locator(".ts-runs tbody tr").nth(2).locator("td")
    assert third.all_inner_texts() == ["\u2212∞", "", "0.00", ""]
    first = page.locator(".ts-runs tbody tr").nth(0).locator("td")
    assert "," in first.all_inner_texts()[3]


def test_the_keyboard_alone_walks_to_the_end_and_back(shown, state):
    page = shown(state, STEM)
    page.get_by_role("button", name="Next tile").focus()
    for _ in range(9):
        page.keyboard.press("Enter")
    assert read_status(page).endswith("All is done.")
    focused = "document.activeElement.textContent"
    assert page.evaluate(focused) == "Back"  # the other one is disabled
    page.keyboard.press("Enter")
    assert read_status(page).startswith("Step 8 of 9")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.get_by_label("Tiles done").focus()
    page.keyboard.press("ArrowLeft")
    assert read_status(page).startswith("Step 7 of 9")
    page.keyboard.press("Home")
    assert read_status(page).startswith("Nothing is done yet")


def test_sizes_change_the_walk_and_the_bytes(shown, state):
    page = shown(state | {"step": 9}, STEM)
    bytes_of = page.locator(".ts-bytes output").first
    before = bytes_of.inner_text()
    page.get_by_label("Queries in a tile").fill("5")
    assert read_status(page).startswith("Step 3 of 3")
    assert bytes_of.inner_text() != before
    page.get_by_label("Keys S").fill("10")
    assert page.locator(".ts-scores thead th").count() == 10
    page.get_by_label("causal").check()
    assert page.locator(".ts-scores .ts-hidden-key").count() > 0


def test_both_tables_have_an_accessible_name(shown, state):
    page = shown(state, STEM)
    tables = page.get_by_role("table")
    assert tables.count() == 2
    assert all(t.get_attribute("aria-label") for t in tables.all())


@pytest.mark.parametrize("size", [320, 390])
def test_tables_and_buttons_fit_a_phone(shown, size):
    page = shown(WIDE[STEM].state(), STEM)
    page.set_viewport_size({"width": size, "height": 640})
    # Ten columns of numbers that can be read are wider than a phone with some
    # fonts: then a table scrolls in its own box, which fits.
    for table in page.locator(".ts-table").all():
        box = table.locator("..").bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= size
        assert table.evaluate(
            "e => e.parentElement.scrollLeft === 0 && e.offsetWidth"
            " <= e.parentElement.scrollWidth"
            " && parseFloat(getComputedStyle(e).fontSize) >= 12"
        )
    for button in page.get_by_role("button").all():
        box = button.bounding_box()
        assert min(box["width"], box["height"]) >= 24
