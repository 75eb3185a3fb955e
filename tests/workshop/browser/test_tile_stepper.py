"""The tile stepper in a real browser: keys, mouse, bad input, a phone."""

import pytest

from attnbook.widgets.tile_stepper import TileStepper

pytestmark = pytest.mark.browser

STEM = "tile_stepper"


@pytest.fixture
def state():
    return TileStepper(step=0).state()


def told(page):
    return page.locator("[role=status]").inner_text()


def cells(page, name):
    return page.locator(f".ts-scores .{name}").count()


def test_a_step_is_shown_in_both_tables_and_described(shown, state):
    page = shown(state, STEM)
    assert told(page).startswith("Nothing is done yet. 9 tiles")
    assert (cells(page, "ts-now"), cells(page, "ts-done")) == (0, 0)
    page.click("text=Next tile")
    assert told(page).startswith("Step 1 of 9. Queries 0 to 1 meet keys 0 to 2")
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
    assert told(page).endswith("All is done.")
    focused = "document.activeElement.textContent"
    assert page.evaluate(focused) == "Back"  # the other one is disabled
    page.keyboard.press("Enter")
    assert told(page).startswith("Step 8 of 9")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.get_by_label("Tiles done").focus()
    page.keyboard.press("ArrowLeft")
    assert told(page).startswith("Step 7 of 9")
    page.keyboard.press("Home")
    assert told(page).startswith("Nothing is done yet")


def test_sizes_change_the_walk_and_the_bytes(shown, state):
    page = shown(state | {"step": 9}, STEM)
    bytes_of = page.locator(".ts-bytes output").first
    before = bytes_of.inner_text()
    page.get_by_label("Queries in a tile").fill("5")
    assert told(page).startswith("Step 3 of 3")
    assert bytes_of.inner_text() != before
    page.get_by_label("Keys S").fill("10")
    assert page.locator(".ts-scores thead th").count() == 10
    page.get_by_label("causal").check()
    assert page.locator(".ts-scores .ts-hidden-key").count() > 0


def test_every_control_has_an_accessible_name(shown, state):
    page = shown(state, STEM)
    named = "e => e.getAttribute('aria-label') || e.labels?.[0]?.textContent"
    for role in "button", "slider", "checkbox":
        for part in page.get_by_role(role).all():
            assert part.evaluate(named) or part.inner_text()
    tables = page.get_by_role("table")
    assert tables.count() == 2
    assert all(t.get_attribute("aria-label") for t in tables.all())


def test_nothing_moves_by_itself(shown, state):
    page = shown(state, STEM)
    page.click("text=Next tile")
    assert page.evaluate("document.getAnimations().length") == 0


@pytest.mark.parametrize("size", [320, 390])
def test_it_fits_a_phone(shown, size):
    widget = TileStepper(T=10, S=10, rows=3, columns=10, step=4)
    page = shown(widget.state(), STEM)
    page.set_viewport_size({"width": size, "height": 640})
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= size
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
    assert page.wrong == []


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"query": None, "key": [3], "value": "<img src=x onerror=alert(1)>"},
        {"T": "NaN", "S": -4, "rows": {}, "columns": [], "step": "no"},
    ],
)
def test_invalid_input_is_replaced_and_drawn(shown, given):
    page = shown(given, STEM)
    assert page.locator(".ts-table").count() == 2
    for _ in range(3):
        page.click("text=Next tile")
    assert page.locator(".ts img").count() == 0
    assert page.wrong == []


def test_two_widgets_on_one_page_share_no_id(shown, state):
    page = shown(state, STEM, copies=2)
    page.wait_for_selector("[data-state] >> nth=1", state="attached")
    ids = page.eval_on_selector_all("[id]", "all => all.map(e => e.id)")
    assert len(ids) == len({*ids}) > 0


@pytest.mark.parametrize(("theme", "dark"), [("dark", True), ("light", False)])
def test_light_and_dark_follow_the_page(shown, state, theme, dark):
    page = shown(state, STEM)
    page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    colour = "getComputedStyle(document.querySelector('.ts')).color"
    assert (page.evaluate(colour) == "rgb(230, 232, 235)") == dark
