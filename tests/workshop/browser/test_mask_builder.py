"""The mask builder in a real browser: keys, mouse, bad input, a phone."""

import pytest

from attnbook.widgets.mask_builder import MaskBuilder
from widget_examples import WIDE

pytestmark = pytest.mark.browser

STEM = "mask_builder"


@pytest.fixture
def state():
    return MaskBuilder().state()


def rows(page, table=0):
    lines = page.locator(".mb-table").nth(table).locator("tbody tr")
    return ["".join(line.locator("td").all_inner_texts()) for line in lines.all()]


def read_statuses(page):
    return page.locator("[role=status]").all_inner_texts()


def test_mask_weights_and_words_are_shown(shown, state):
    page = shown(state, STEM)
    drawn = ["●●●····", "●●●●···", "●●●●●··", "●●●●●●·", "●●●●●●●"]
    assert rows(page) == drawn
    assert page.inner_text(".mb-formula") == "causal & padding"
    assert read_statuses(page)[0].endswith("Every query sees a key.")
    first = page.locator(".mb-table").nth(1).locator("tbody tr").first
    numbers = first.locator("td").all_inner_texts()
    assert numbers[3:] == ["·"] * 4
    assert abs(sum(map(int, numbers[:3])) - 100) <= 2
    page.get_by_label("Shown").select_option("1")
    assert rows(page) == ["●●●····", *["●●●●···"] * 4]


def test_the_keyboard_alone_builds_a_mask(shown, state):
    page = shown(state, STEM)
    page.get_by_label("Keys S").focus()
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    assert len(rows(page)[0]) == 3
    assert "Queries 0 and 1 see no key" in read_statuses(page)[0]
    assert page.locator(".mb-table").nth(0).locator(".mb-empty").count() == 2
    page.get_by_label("Query 0").focus()
    assert read_statuses(page)[1].startswith("Query 0, before the first key, sees no")
    page.keyboard.press("ArrowDown")
    focused = "document.activeElement.getAttribute('aria-label')"
    assert page.evaluate(focused) == "Query 1"
    page.keyboard.press("End")
    assert page.evaluate(focused) == "Query 4"
    assert read_statuses(page)[1].startswith("Query 4, at key 2, sees keys 0, 1 and 2;")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"


def test_parts_can_be_added_changed_and_removed(shown, state):
    page = shown(state, STEM)
    page.click("text=Add a part")
    assert page.inner_text(".mb-formula") == "causal & padding & window"
    assert page.evaluate("document.activeElement.value") == "window"
    page.get_by_label("keys seen").fill("1")
    assert rows(page)[0] == "··●····"
    page.get_by_label("joined by").nth(1).select_option("or")
    page.get_by_label("not").nth(0).check()
    assert page.inner_text(".mb-formula") == "~causal & padding | window"
    page.get_by_label("Remove part 2, padding").click()
    assert page.inner_text(".mb-formula") == "~causal | window"
    assert page.get_by_label("Length of sequence 1").count() == 0
    assert page.evaluate("document.activeElement.value") == "causal"
    page.get_by_label("kind").nth(1).select_option("dilated")
    assert page.get_by_label("step").count() == 1
    page.click("text=Start again")
    assert page.inner_text(".mb-formula") == "causal & padding"
    for _ in range(2):
        page.click("text=Add a part")
    assert page.locator("text=Add a part").is_disabled()


def test_the_code_and_its_notes_follow_the_mask(shown, state):
    page = shown(state, STEM)
    code = page.locator("pre code")
    assert "mask = causal(5, 7) & padding(lengths, 7)" in code.inner_text()
    choice = page.get_by_label("Code for")
    choice.select_option("mha")
    assert "~mask.expand(2, heads, 5, 7)" in code.inner_text()
    assert "True = masked out" in page.inner_text(".mb")
    page.get_by_label("Queries T").fill("9")
    assert "~mask.expand(2, heads, 9, 7)" in code.inner_text()
    assert "An empty row gives NaN" in page.inner_text(".mb")
    choice.select_option("flex")
    assert "rule_0 = rules.causal(9, 7)" in code.inner_text()


def test_both_tables_have_an_accessible_name(shown, state):
    page = shown(state, STEM)
    page.click("text=Add a part")
    tables = page.get_by_role("table")
    assert tables.count() == 2
    assert all(t.get_attribute("aria-label") for t in tables.all())


def test_touch_chooses_a_query(shown, state):
    page = shown(state, STEM)
    button = page.get_by_label("Query 3")
    box = button.bounding_box()
    assert min(box["width"], box["height"]) >= 24
    send = page.context.new_cdp_session(page).send
    point = {"x": box["x"] + 10, "y": box["y"] + 10}
    send(
        "Input.dispatchTouchEvent",
        {"type": "touchStart", "touchPoints": [point]},
    )
    send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_selector("[aria-label='Query 3'][aria-pressed=true]")
    assert read_statuses(page)[1].startswith("Query 3, at key 5")


@pytest.mark.parametrize("size", [320, 390])
def test_tables_and_parts_fit_a_phone(shown, size):
    page = shown(WIDE[STEM].state(), STEM)
    page.set_viewport_size({"width": size, "height": 640})
    for table in page.locator(".mb-table").all():
        box = table.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= size
    over = page.locator(".mb-parts li, .mb-pair").evaluate_all(
        "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).length"
    )
    assert over == 0
