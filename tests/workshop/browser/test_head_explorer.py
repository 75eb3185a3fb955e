"""The head explorer in a real browser: keys, mouse, a phone, both themes."""

import pytest

from attnbook.data.smollm2_head_maps import load_head_maps
from attnbook.widgets.head_explorer import SCORES, HeadExplorer
from canvas import read_pixel
from widget_examples import WIDE

pytestmark = pytest.mark.browser

STEM = "head_explorer"


@pytest.fixture(scope="module")
def widget():
    return HeadExplorer(load_head_maps(), sentence=1)


@pytest.fixture
def page(shown, widget):
    return shown(widget.state(), STEM)


def read_statuses(page):
    return page.locator("[role=status]").all_inner_texts()


def find_chosen(page):
    return page.get_by_role("gridcell", selected=True)


def test_grid_map_lists_and_words_are_shown(page, widget):
    assert page.get_by_role("gridcell").count() == 270
    assert page.get_by_role("row").count() >= 9
    assert page.locator(".hx-recorded").count() == len(widget.heads)
    place = f"Layer {widget.layer}, head {widget.head}: "
    assert find_chosen(page).get_attribute("aria-label").startswith(place)
    about, asked, changes = read_statuses(page)
    assert about.startswith(f"{place}induction score")
    position = f"at position {widget.query} gives the largest weight"
    assert position in asked
    assert changes.startswith("Without this head, the loss rises most for")
    tokens = widget.sentences[1]["tokens"]
    for name in ("Keys of the query", "Tokens, with the change"):
        words = page.get_by_role("list", name=name).locator("bdi")
        assert words.all_inner_texts() == [x.strip() for x in tokens]
    picture = page.get_by_role("img")
    assert f"of {len(tokens)} queries" in picture.get_attribute("aria-label")


def test_the_listed_weights_are_those_of_python(page, widget):
    for measure, rows in (
        ("weight", widget.weights()),
        ("norm", widget.weighted_norms()),
    ):
        page.get_by_label("Map", exact=True).select_option(measure)
        keys = page.get_by_role("list", name="Keys of the query")
        shown = [float(x) for x in keys.locator("span").all_inner_texts()]
        assert shown == pytest.approx(rows[-1].tolist(), abs=0.00501)
    tokens = page.get_by_role("list", name="Tokens, with the change")
    numbers = tokens.locator("span").all_inner_texts()
    assert numbers[0] == "first"
    changes = [float(x.replace("\u2212", "-")) for x in numbers[1:]]
    assert changes == pytest.approx(widget.effects().tolist())


def test_arrow_keys_walk_over_all_heads(page, widget):
    find_chosen(page).focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowUp")
    label = find_chosen(page).get_attribute("aria-label")
    assert label.startswith(f"Layer 0, head {max(widget.head - 1, 0)}: ")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    place = f"Layer 1, head {max(widget.head - 1, 0) + 1}: "
    focused = "document.activeElement.getAttribute('aria-label')"
    assert page.evaluate(focused).startswith(place)
    assert read_statuses(page)[0].startswith(place)
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    # One tab stop for the whole grid.
    assert page.locator("[role=gridcell][tabindex='0']").count() == 1


def test_a_head_without_a_map_is_said_to_have_none(page, widget):
    places = {(x["layer"], x["head"]) for x in widget.heads}
    assert (0, 0) not in places
    page.get_by_role("gridcell", name="Layer 0, head 0: ").click()
    assert page.get_by_text("was not recorded").is_visible()
    assert not page.get_by_role("img").is_visible()
    assert page.get_by_label("Head", exact=True).input_value() == "-1"
    assert read_statuses(page)[0].startswith("Layer 0, head 0: induction")
    page.get_by_label("Head", exact=True).select_option("0")
    assert page.get_by_role("img").is_visible()
    assert not page.get_by_text("was not recorded").is_visible()
    first = widget.heads[0]
    place = f"Layer {first['layer']}, head {first['head']}: "
    assert read_statuses(page)[0].startswith(place)


def test_a_click_on_the_map_chooses_the_query(page, widget):
    T = len(widget.sentences[1]["tokens"])
    box = page.locator(".hx-map").bounding_box()
    at = {"x": box["width"] / 2, "y": 6.5 * box["height"] / T}
    page.locator(".hx-map").click(position=at)
    query = page.get_by_label("Query", exact=True)
    assert query.input_value() == "6"
    assert "at position 6 gives" in read_statuses(page)[1]
    query.focus()
    page.keyboard.press("ArrowLeft")
    assert "at position 5 gives" in read_statuses(page)[1]
    later = page.get_by_role("list", name="Keys of the query")
    assert later.locator(".hx-later").count() == T - 6


def test_sentence_and_color_are_chosen(page, widget):
    for nth, sentence in enumerate(widget.sentences):
        page.get_by_label("Sentence", exact=True).select_option(str(nth))
        last = len(sentence["tokens"]) - 1
        assert f"at position {last} gives" in read_statuses(page)[1]
        keys = page.get_by_role("list", name="Keys of the query")
        assert keys.locator("li").count() == last + 1
    for score in SCORES:
        page.get_by_label("Color", exact=True).select_option(score)
        value = page.get_by_role("gridcell", name="Layer 1, head 4: ")
        label = value.get_attribute("aria-label").replace("\u2212", "-")
        number = label.partition(": ")[2].partition(",")[0]
        divisor = 1000 if score == "effect" else 100
        wanted = widget.sentences[-1][score][13] / divisor
        assert float(number) == pytest.approx(wanted)
    assert page.locator(".hx-cell.hx-falls").count() > 10


def test_the_code_follows_the_head(page):
    page.click("summary")
    assert "ablate_heads(model, [(18, 6)])" in page.inner_text("pre code")
    find_chosen(page).focus()
    page.keyboard.press("ArrowLeft")
    assert "ablate_heads(model, [(17, 6)])" in page.inner_text("pre code")


@pytest.mark.parametrize("size", [320, 390, 768, 1280])
def test_grid_and_map_fit_the_screen(shown, size):
    page = shown(WIDE[STEM].state(), STEM)
    page.set_viewport_size({"width": size, "height": 640})
    for name in (".hx-grid", ".hx-plot", ".hx-wide"):
        box = page.locator(name).bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= size, name
    over = page.locator(".hx-pair, .hx-words").evaluate_all(
        "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).length"
    )
    assert over == 0
    cells = page.get_by_role("gridcell").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect().width)"
    )
    assert min(cells) >= 7


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_rise_a_fall_and_no_effect_differ_in_both_themes(page, theme):
    page.emulate_media(color_scheme=theme)
    page.get_by_label("Color", exact=True).select_option("effect")
    colors = page.locator(".hx-cell").evaluate_all(
        "all => all.map(e => getComputedStyle(e).backgroundColor)"
    )
    assert len({*colors}) > 20
    ink = "e => getComputedStyle(e).getPropertyValue('accent-color')"
    first = page.locator(".hx").evaluate(ink)
    other = "dark" if theme == "light" else "light"
    before = read_pixel(page, ".hx-map canvas", 1, 1)
    page.emulate_media(color_scheme=other)
    after = read_pixel(page, ".hx-map canvas", 1, 1, unlike=before)
    assert page.locator(".hx").evaluate(ink) != first
    assert after != before


def test_nothing_moves_when_another_head_is_chosen(page):
    find_chosen(page).focus()
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.getAnimations().length") == 0
