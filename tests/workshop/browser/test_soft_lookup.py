"""The soft lookup in a real browser: mouse, keyboard, bad input, a phone."""

import pytest

from attnbook.widgets.soft_lookup import SoftLookup
from keyboard import drag_by_touch
from widget_examples import WIDE

pytestmark = pytest.mark.browser

STEM = "soft_lookup"


@pytest.fixture
def state():
    return SoftLookup(query=[0, 0]).state()


def numbers(page):
    return page.locator(".sl-rows td:last-child").all_inner_texts()


def status(page):
    return page.locator("[role=status]").text_content()


def test_the_keyboard_moves_the_query_and_the_keys(shown, state):
    page = shown(state, STEM)
    assert numbers(page) == ["0.33", "0.33", "0.33"]
    page.focus(".sl-query")
    for _ in range(6):
        page.keyboard.press("Shift+ArrowRight")
    label = page.get_attribute(".sl-query", "aria-label")
    assert label.startswith("Query at 3.0, 0.0")
    assert float(numbers(page)[0]) > 0.95
    assert "most of it from red (0.98)" in status(page)
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowUp")
    label = page.get_attribute(".sl-key >> nth=2", "aria-label")
    assert label.startswith("Key blue at -0.8, -1.2")


def test_the_mouse_drags_a_point_no_further_than_the_edge(shown, state):
    page = shown(state, STEM)
    box = page.locator(".sl-plane").bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0], box["y"] - 40, steps=4)
    page.mouse.up()
    label = page.get_attribute(".sl-query", "aria-label")
    assert label.startswith("Query at 0.0, 3.0")
    assert "most of it from green (0.94)" in status(page)


def test_a_drag_updates_the_model_once_at_its_end(shown, state):
    page = shown(state, STEM)
    box = page.locator(".sl-query").bounding_box()
    x, y = box["x"] + box["width"] / 2 + 7, box["y"] + box["height"] / 2 - 5
    before = status(page)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 1, y)
    label = page.get_attribute(".sl-query", "aria-label")
    assert label.startswith("Query at 0.0, 0.0")  # taken off its middle: no jump
    page.mouse.move(x + 100, y, steps=5)
    assert page.inner_text(".sl-finding") != before == status(page)
    page.mouse.up()
    assert page.inner_text(".sl-finding") == status(page) != before


def test_scores_and_entropy_are_shown(shown, state):
    page = shown(state, STEM)
    scores = page.locator(".sl-rows td:nth-child(2)")
    assert scores.all_inner_texts() == ["0.0", "0.0", "0.0"]
    even = "Entropy 1.10 nats, of at most 1.10"
    assert page.inner_text(".sl-entropy") == even
    page.focus(".sl-query")
    page.keyboard.press("Shift+ArrowLeft")
    assert scores.all_inner_texts() == ["\u22120.5", "0.3", "0.3"]
    assert page.inner_text(".sl-entropy") < even


def test_controls_have_their_roles_and_values(shown, state):
    page = shown(state, STEM)
    for role, count in ("button", 5), ("slider", 2), ("checkbox", 1):
        assert page.get_by_role(role).count() == count
    page.get_by_label("Temperature").fill("-1")
    value = page.get_by_label("Temperature").get_attribute("aria-valuetext")
    assert value == "0.1"
    assert page.get_by_role("application").locator("button").count() == 4


def test_touch_drags_a_key_without_scrolling_the_page(shown, state):
    page = shown(state, STEM)
    point = page.locator(".sl-key >> nth=1")
    assert point.evaluate("e => getComputedStyle(e).touchAction") == "none"
    box = point.bounding_box()
    assert min(box["width"], box["height"]) >= 44
    drag_by_touch(page, box, 60)
    moved = page.get_attribute(".sl-key >> nth=1", "aria-label")
    assert not moved.startswith("Key green at -0.8, 1.3")
    assert page.evaluate("scrollY") == 0


def test_low_temperature_selects_one_key_and_high_temperature_does_not(shown, state):
    page = shown({**state, "query": [1, 0.2]}, STEM)
    heat = page.get_by_label("Temperature")
    heat.focus()
    page.keyboard.press("Home")
    assert numbers(page) == ["1.00", "0.00", "0.00"]
    page.keyboard.press("End")
    assert max(map(float, numbers(page))) < 0.36


def test_width_without_the_division_gives_sharp_weights(shown, state):
    page = shown(state, STEM)
    page.get_by_label("Width D").focus()
    page.keyboard.press("End")
    scaled = max(map(float, numbers(page)))
    page.get_by_label("divide by √D").uncheck()
    assert max(map(float, numbers(page))) > max(scaled, 0.95)
    page.click("text=Start again")
    assert numbers(page) == ["0.33", "0.33", "0.33"]
    assert page.get_by_label("divide by √D").is_checked()


@pytest.mark.parametrize("size", [320, 390])
def test_each_control_is_on_one_line_of_a_phone(shown, size):
    page = shown(WIDE[STEM].state(), STEM)
    page.set_viewport_size({"width": size, "height": 640})
    heights = page.locator(".sl-control").evaluate_all(
        "all => all.map(e => e.offsetHeight)"
    )
    assert max(heights) < 50
