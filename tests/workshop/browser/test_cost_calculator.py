"""The cost calculator in a real browser: keyboard, bad input, a phone."""

import pytest

from attnbook.widgets.cost_calculator import CostCalculator

pytestmark = pytest.mark.browser

STEM = "cost_calculator"
NAMES = (
    "Model",
    "Device",
    "Phase",
    "Heads H",
    "Key-value heads G",
    "Numbers",
)


@pytest.fixture
def state():
    return CostCalculator().state()


def cells(page):
    rows = page.locator(".cc-rows tbody tr").all()
    return [row.locator("td").all_inner_texts() for row in rows]


def test_the_widget_shows_the_fallbacks_numbers(shown, state):
    page = shown(state, STEM)
    assert cells(page) == [[*row[1:]] for row in CostCalculator().rows()]
    beside = page.inner_text(".cc-side .cc-label >> nth=0")
    assert "Heads are 64 wide" in beside


def test_the_keyboard_changes_the_length(shown, state):
    page = shown(state, STEM)
    page.get_by_label("Length n").focus()
    page.keyboard.press("ArrowLeft")
    assert cells(page) == [[*row[1:]] for row in CostCalculator(n=2048).rows()]
    page.keyboard.press("Home")
    assert cells(page) == [[*row[1:]] for row in CostCalculator(n=1).rows()]
    page.keyboard.press("End")
    assert "than the 16.0 GB there are" in page.inner_text("[role=status]")


def test_choosing_a_model_sets_its_heads(shown, state):
    page = shown(state, STEM)
    page.get_by_label("Model").select_option("Llama 3 8B")
    assert page.get_by_label("Heads H").input_value() == "32"
    assert page.get_by_label("Key-value heads G").input_value() == "8"
    made = CostCalculator("Llama 3 8B")
    assert cells(page) == [[*row[1:]] for row in made.rows()]
    link = page.locator(".cc-sources a").first
    assert link.get_attribute("href").startswith("https://")


def test_groups_that_do_not_divide_the_heads_are_replaced(shown, state):
    page = shown(state, STEM)
    page.get_by_label("Key-value heads G").select_option("3")
    page.get_by_label("Heads H").select_option("16")
    assert page.get_by_label("Key-value heads G").input_value() == "16"
    options = page.get_by_label("Key-value heads G").locator("option")
    assert options.all_inner_texts() == ["1", "2", "4", "8", "16"]


def test_every_control_can_be_set_and_reset(shown, state):
    page = shown(state, STEM)
    before = cells(page)
    page.get_by_label("Device").select_option("H200 SXM")
    page.get_by_label("Phase").select_option("decode")
    page.get_by_label("Numbers").select_option("2")
    page.get_by_label("Batch B").fill("5")
    made = CostCalculator(device="H200 SXM", phase="decode", itemsize=2, batch=32)
    assert cells(page) == [[*row[1:]] for row in made.rows()]
    page.get_by_text("Start again").click()
    assert cells(page) == before
    assert page.wrong == []


def test_controls_have_their_labels_and_values(shown, state):
    page = shown(state, STEM)
    for role, count in ("combobox", 6), ("slider", 2), ("button", 1):
        assert page.get_by_role(role).count() == count
    for name in NAMES:
        assert page.get_by_label(name).count() == 1
    text = page.get_by_label("Length n").get_attribute("aria-valuetext")
    assert text == "4096 positions"
