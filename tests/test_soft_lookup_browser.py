"""The soft lookup in a real browser: mouse, keyboard, bad input, a phone."""

import pytest

from attnbook.widgets.soft_lookup import SoftLookup

pytestmark = pytest.mark.browser

STEM = "soft_lookup"


@pytest.fixture
def state():
    return SoftLookup(query=[0, 0]).state()


def numbers(page):
    return page.locator(".sl-number").all_inner_texts()


def test_the_keyboard_moves_the_query_and_the_keys(shown, state):
    page = shown(state, STEM)
    assert numbers(page) == ["0.33", "0.33", "0.33"]
    page.focus(".sl-query")
    for _ in range(6):
        page.keyboard.press("Shift+ArrowRight")
    label = page.get_attribute(".sl-query", "aria-label")
    assert label.startswith("Query at 3.0, 0.0")
    assert float(numbers(page)[0]) > 0.95
    assert page.inner_text("[role=status]").startswith("Most from red")
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
    assert page.inner_text("[role=status]").startswith("Most from green")


def test_cold_decides_and_hot_does_not(shown, state):
    page = shown({**state, "query": [1, 0.2]}, STEM)
    heat = page.get_by_label("Temperature")
    heat.focus()
    page.keyboard.press("Home")
    assert numbers(page) == ["1.00", "0.00", "0.00"]
    page.keyboard.press("End")
    assert numbers(page) == ["0.34", "0.33", "0.33"] or (
        max(map(float, numbers(page))) < 0.36
    )


def test_width_without_the_division_is_cold(shown, state):
    page = shown(state, STEM)
    page.get_by_label("Width D").focus()
    page.keyboard.press("End")
    scaled = max(map(float, numbers(page)))
    page.get_by_label("divide by √D").uncheck()
    assert max(map(float, numbers(page))) > max(scaled, 0.95)
    page.click("text=Start again")
    assert numbers(page) == ["0.33", "0.33", "0.33"]
    assert page.get_by_label("divide by √D").is_checked()


def test_it_fits_a_phone_and_says_nothing_wrong(shown, state):
    page = shown(state, STEM)
    page.set_viewport_size({"width": 320, "height": 640})
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 320
    assert page.wrong == []


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"entries": [None, 3]},
        {"entries": [{"label": "<img src=x onerror=alert(1)>"}], "width": "x"},
    ],
)
def test_bad_input_is_shown_or_said(shown, given):
    page = shown(given, STEM)
    assert page.locator(".sl").count() == 1
    assert page.locator(".sl img").count() == 0
    assert page.wrong == []


def test_two_on_one_page_do_not_share_a_name(shown, state):
    page = shown(state, STEM, copies=2)
    page.wait_for_selector("[data-state] >> nth=1", state="attached")
    ids = page.eval_on_selector_all("[id]", "all => all.map(e => e.id)")
    assert len(ids) == len({*ids}) > 0


@pytest.mark.parametrize(("theme", "dark"), [("dark", True), ("light", False)])
def test_light_and_dark_follow_the_page(shown, state, theme, dark):
    page = shown(state, STEM)
    page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    colour = "getComputedStyle(document.querySelector('.sl')).color"
    assert (page.evaluate(colour) == "rgb(230, 232, 235)") == dark
    page.set_viewport_size({"width": 900, "height": 620})
