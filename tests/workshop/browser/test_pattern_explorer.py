"""The pattern explorer in a real browser: keys, mouse, a phone, both themes."""

import pytest

from attnbook.widgets.pattern_explorer import PRESETS, PatternExplorer
from widget_examples import WIDE, make_pattern_explorer

pytestmark = pytest.mark.browser

STEM = "pattern_explorer"
TOKENS = ["<s>", *(f" word{t}" for t in range(1, 32))]


@pytest.fixture
def state():
    widget = make_pattern_explorer(TOKENS, window=4, sinks=0, layers=2)
    return widget.state()


def read_statuses(page):
    return page.locator("[role=status]").all_inner_texts()


def count_tokens(page):
    kinds = ("now", "direct", "reached", "out", "later")
    return [page.locator(f".pt-passage .pt-{x}").count() for x in kinds]


def test_pictures_passage_and_words_are_shown(shown, state):
    page = shown(state, STEM)
    cost, reach = read_statuses(page)
    assert cost.startswith("The pattern computes 122 scores, 23 % of the 528")
    assert reach.startswith("Position 31 attends to 4 keys. Inputs that can")
    assert "through 2 layers: 7 of 32. 11 layers reach all" in reach
    assert count_tokens(page) == [1, 3, 3, 25, 0]
    pictures = page.get_by_role("img")
    assert pictures.count() == 2
    assert all(
        "queries" in x.get_attribute("aria-label").lower()
        or "weights" in x.get_attribute("aria-label")
        for x in pictures.all()
    )
    assert page.locator(".pt-lost").count() >= 1
    assert page.get_by_role("table").count() == 2
    assert page.get_by_label("Pattern", exact=True).input_value() == "-1"


def test_the_keyboard_alone_changes_pattern_and_position(shown, state):
    page = shown(state, STEM)
    page.get_by_label("Window (keys)").focus()
    page.keyboard.press("ArrowRight")
    assert "attends to 5 keys" in read_statuses(page)[1]
    page.get_by_label("Layers", exact=True).focus()
    page.keyboard.press("ArrowRight")
    assert "through 3 layers: 13 of 32" in read_statuses(page)[1]
    page.get_by_label("Position", exact=True).focus()
    page.keyboard.press("Home")
    assert read_statuses(page)[1].startswith("Position 0 attends to 1 key.")
    assert count_tokens(page) == [1, 0, 0, 0, 31]
    page.keyboard.press("ArrowRight")
    assert count_tokens(page) == [1, 1, 0, 0, 30]
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.click("text=Start again")
    assert "Position 31 attends to 4 keys" in read_statuses(page)[1]


def test_a_preset_sets_all_parts(shown, state):
    page = shown(state, STEM)
    choice = page.get_by_label("Pattern", exact=True)
    for nth, (name, pattern) in enumerate(PRESETS.items()):
        choice.select_option(name)
        fitted = pattern.fit(32)
        scores = f"computes {fitted.count_scores(32):,} scores"
        assert scores in read_statuses(page)[0]
        window = page.get_by_label("Window (keys)")
        assert window.input_value() == str(fitted.window)
        assert choice.input_value() == str(nth)
    assert "in blocks of 8" in read_statuses(page)[0]
    page.get_by_label("Blocks", exact=True).select_option("1")
    assert choice.input_value() == "-1"
    assert page.get_by_label("Random blocks", exact=True).is_disabled()


def test_a_click_on_a_picture_chooses_the_position(shown, state):
    page = shown(state, STEM)
    picture = page.locator(".pt-picture").first
    box = picture.bounding_box()
    place = {"x": box["width"] / 2, "y": 13 * box["height"] / 33}
    picture.click(position=place)
    assert page.get_by_label("Position", exact=True).input_value() == "12"
    assert read_statuses(page)[1].startswith("Position 12 attends to 4 keys.")


def test_the_code_follows_the_pattern(shown, state):
    page = shown(state, STEM)
    page.click("summary")
    code = page.locator("pre code")
    assert "masks.dilated(32, 32, size=4, step=1)" in code.inner_text()
    page.get_by_label("Sinks", exact=True).fill("2")
    assert "masks.sinks(32, 32, count=2)" in code.inner_text()


def test_the_kept_weight_is_that_of_python(shown, state):
    page = shown(state, STEM)
    example = {k: state[k] for k in ("title", "tokens", "heads")}
    for window in (1, 4, 20):
        page.get_by_label("Window (keys)").fill(str(window))
        widget = PatternExplorer(example, window=window, sinks=0)
        kept = f"keeps {float(widget.kept().mean()):.0%}".replace("%", " %")
        assert kept in read_statuses(page)[0]


@pytest.mark.parametrize("size", [320, 390, 768, 1280])
def test_pictures_and_tables_fit_the_screen(shown, size):
    page = shown(WIDE[STEM].state(), STEM)
    page.set_viewport_size({"width": size, "height": 640})
    for picture in page.locator(".pt-picture").all():
        box = picture.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= size
        assert box["width"] == pytest.approx(box["height"], abs=2)
    over = page.locator(".pt-pair, .pt-passage").evaluate_all(
        "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).length"
    )
    assert over == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_kept_and_lost_weights_differ_from_the_page_in_both_themes(shown, state, theme):
    page = shown(state, STEM)
    page.emulate_media(color_scheme=theme)
    fill = "e => getComputedStyle(e).fill"
    colors = [
        page.locator(f".{name}").first.evaluate(fill)
        for name in ("pt-may", "pt-kept", "pt-lost", "pt-past")
    ]
    assert colors[0] == colors[1]
    assert len({*colors}) == 3
    ground = page.locator(".pt-picture").first.evaluate(
        "e => getComputedStyle(e).backgroundColor"
    )
    assert ground not in colors
