"""The position explorer in a real browser: mouse, keyboard, a phone."""

import pytest

from attnbook.widgets.position_explorer import PositionExplorer
from keyboard import drag_by_touch
from widget_examples import WIDE

pytestmark = pytest.mark.browser

STEM = "position_explorer"


@pytest.fixture
def state():
    return PositionExplorer().state()


def status(page):
    return page.locator("[role=status]").text_content()


def score(page):
    return status(page).split("score ")[1].split(". ")[0]


def label(page, name):
    return page.get_attribute(f".pe-tip.pe-{name}", "aria-label")


def test_only_the_distance_matters(shown, state):
    page = shown(state, STEM)
    before = score(page)
    both = page.get_by_label("Move both")
    both.focus()
    for _ in range(9):
        page.keyboard.press("ArrowRight")
    assert status(page).startswith("Query at 29, key at 23, 6 steps before it")
    assert score(page) == before
    page.keyboard.press("End")
    assert status(page).startswith("Query at 63, key at 57")
    page.keyboard.press("Home")
    assert status(page).startswith("Query at 6, key at 0")
    assert score(page) == before
    page.get_by_label("Key position").focus()
    page.keyboard.press("End")
    assert status(page).startswith("Query at 6, key at 63, 57 steps after it")
    assert score(page) != before


def test_with_sinusoidal_encodings_the_position_matters_too(shown, state):
    page = shown(state, STEM)
    assert page.get_attribute(".pe-curve", "points")
    page.get_by_label("Method").select_option("sinusoidal")
    before = score(page)
    assert "elsewhere" in status(page)
    page.get_by_label("Move both").fill("50")
    assert status(page).startswith("Query at 50, key at 44")
    assert score(page) != before
    assert page.get_attribute(".pe-curve", "points") == ""


def test_the_keyboard_rotates_a_vector(shown, state):
    page = shown(state, STEM)
    page.focus(".pe-tip.pe-query")
    before = label(page, "query"), score(page)
    page.keyboard.press("Shift+ArrowLeft")
    assert label(page, "query").startswith("Query at ")
    assert (label(page, "query"), score(page)) != before
    page.keyboard.press("Tab")
    for _ in range(20):
        page.keyboard.press("Shift+ArrowUp")
    # Up to the edge, and no longer than the plane shows.
    x, y = (
        float(n)
        for n in label(page, "key")
        .removeprefix("Key at ")
        .split(";")[0]
        .replace("\N{MINUS SIGN}", "-")
        .split(", ")
    )
    assert x**2 + y**2 == pytest.approx(9, abs=0.4)
    assert y > 2.5


def test_the_mouse_drags_a_tip_and_updates_the_model_at_the_end(shown, state):
    page = shown(state, STEM)
    box = page.locator(".pe-tip.pe-key").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    before = status(page)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 50, y, steps=5)
    assert page.inner_text(".pe-finding") != before == status(page)
    moved = page.locator(".pe-tip.pe-key").bounding_box()
    assert moved["x"] == pytest.approx(box["x"] - 50, abs=1)
    page.mouse.up()
    assert page.inner_text(".pe-finding") == status(page) != before


def test_pairs_are_chosen_and_described(shown, state):
    page = shown(state, STEM)
    rows = page.locator(".pe-waves button")
    assert rows.count() == 8
    pressed = page.locator(".pe-waves [aria-pressed=true]")
    assert pressed.get_attribute("aria-label") == ("Pair 3 of 8, wavelength 62.8 steps")
    rows.nth(0).click()
    assert "columns 0 (across) and 1 (up)" in page.inner_text(".pe-left")
    assert "rotates by \N{MINUS SIGN}6.00 rad" in page.inner_text(".pe-left")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.ariaLabel").startswith("Pair 2 of 8")
    assert pressed.count() == 1


def test_width_and_base_change_the_wavelengths(shown, state):
    page = shown(state, STEM)
    page.get_by_label("Base").select_option("100")
    last = page.locator(".pe-waves button >> nth=-1")
    assert last.get_attribute("aria-label").endswith("wavelength 353 steps")
    page.get_by_label("Width D").focus()
    page.keyboard.press("Home")
    assert page.locator(".pe-waves button").count() == 1
    assert page.locator(".pe-waves [aria-pressed=true]").count() == 1
    page.keyboard.press("End")
    assert page.locator(".pe-waves button").count() == 16
    page.click("text=Start again")
    assert page.locator(".pe-waves button").count() == 8
    assert page.get_by_label("Base").input_value() == "10000"


def test_controls_have_their_roles_and_values(shown, state):
    page = shown(state, STEM)
    for role, count in ("button", 11), ("slider", 4), ("combobox", 2):
        assert page.get_by_role(role).count() == count
    assert page.get_by_role("application").locator("button").count() == 2
    message = page.get_attribute(".pe-plot", "aria-label")
    assert message.startswith("Score, from ")
    assert message.endswith("a line: one score for each distance")
    both = page.get_by_label("Move both").get_attribute("aria-valuetext")
    assert both == "query 20, key 14"


def test_touch_drags_a_tip_without_scrolling_the_page(shown, state):
    page = shown(state, STEM)
    point = page.locator(".pe-tip.pe-query")
    assert point.evaluate("e => getComputedStyle(e).touchAction") == "none"
    box = point.bounding_box()
    assert min(box["width"], box["height"]) >= 44
    before = label(page, "query")
    drag_by_touch(page, box, 60)
    assert label(page, "query") != before
    assert page.evaluate("scrollY") == 0


@pytest.mark.parametrize("size", [320, 390])
@pytest.mark.parametrize("method", ["rotary", "sinusoidal"])
def test_every_part_fits_a_phone(shown, size, method):
    page = shown({**WIDE[STEM].state(), "method": method}, STEM)
    page.set_viewport_size({"width": size, "height": 640})
    assert page.evaluate("document.documentElement.scrollWidth") <= size
    heights = page.locator(".pe-control").evaluate_all(
        "all => all.map(e => e.offsetHeight)"
    )
    assert max(heights) < 50  # one line each
    over = page.evaluate(
        "[...document.querySelectorAll('.pe *')].filter("
        "e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth "
        "&& !e.matches('.pe-hidden')).map(e => e.className)"
    )
    assert over == []
