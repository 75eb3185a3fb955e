"""What holds of every widget in a real browser.

`make book` comes first: the states are those that the built pages hold, so a
new widget is tested as soon as a chapter shows it.
"""

import json
import re

import pytest

from widget_examples import WIDE
from widget_states import FOUND

pytestmark = pytest.mark.browser

STATES = {s: json.loads(min(texts, key=len)) for s, texts in FOUND.items()}
STEMS = sorted(STATES)
ROLES = (
    "button", "checkbox", "combobox", "radio", "slider", "switch", "textbox",
)  # fmt: skip
# Without reduced motion, too.
STILL = (
    "head_explorer",
    "mask_builder",
    "pattern_explorer",
    "picture_and_sound",
    "soft_lookup",
    "tile_stepper",
)
# Moves every slider, chooses every last option, presses every button.
USE = """() => {
  const place = document.querySelector("[data-book-widget]");
  const tell = (e) => ["input", "change"].forEach((type) =>
    e.dispatchEvent(new Event(type, { bubbles: true })));
  for (const e of place.querySelectorAll("input[type=range]")) {
    e.value = e.min;
    tell(e);
  }
  for (const e of place.querySelectorAll("select")) {
    e.selectedIndex = e.options.length - 1;
    tell(e);
  }
  for (const e of place.querySelectorAll("button, [type=checkbox]")) e.click();
}"""
BAD = "<img src=x onerror=alert(1)>"
# What is drawn, or said, for states that no widget should get.
INVALID = [
    *(("soft_lookup", given, ".sl", 1) for given in (
        {}, {"entries": [None, 3]}, {"entries": [{"label": BAD}], "width": "x"},
    )),
    *(("tile_stepper", given, ".ts-table", 2) for given in (
        {}, {"query": None, "key": [3], "value": BAD},
        {"T": "NaN", "S": -4, "rows": {}, "columns": [], "step": "no"},
    )),
    *(("mask_builder", given, ".mb-table", 2) for given in (
        {}, {"parts": [None, 3, {"kind": BAD}]},
        {"T": "NaN", "S": -4, "lengths": 3, "scores": "no", "text": {}},
    )),
    *(("position_explorer", given, ".pe", 1) for given in (
        {}, {"query": None, "positions": "x", "width": "NaN", "pair": -3},
        {"method": BAD, "base": 0},
        {"query": [1e9, -1e9], "positions": [99, -99], "width": 1e9},
    )),
    *(("pattern_explorer", given, "text=no map", 1) for given in (
        {}, {"tokens": ["a"], "heads": 3}, {"tokens": [], "heads": [None]},
    )),
    *(("pattern_explorer", given, ".pt-picture", 2) for given in (
        {"tokens": ["a", None, 3], "heads": [None], "title": BAD},
        {"tokens": [BAD] * 8, "heads": [{"title": BAD}], "block": 8,
         "window": "NaN", "random_blocks": 1e9, "orders": 3, "position": {}},
    )),
    *(("head_explorer", given, "text=no head", 1) for given in (
        {}, {"sentences": 3, "heads": "x"}, {"layers": 2, "per_layer": 2},
    )),
    *(("head_explorer", given, ".hx-cell", 4) for given in (
        {"layers": 2, "per_layer": 2, "sentences": [{"tokens": [BAD, "a"]}]},
        {"layers": 2, "per_layer": 2, "heads": [None, {"title": BAD}],
         "sentences": [None, {"tokens": ["a", None, 3], "losses": [1e308]}],
         "layer": "x", "score": BAD, "query": "NaN", "sentence": {}},
    )),
    *(("picture_and_sound", given, "text=There is no", 1) for given in (
        {}, {"items": "x"}, {"items": [None, {"gray": ["0"]}, {"steps": [{}]}]},
    )),
    *(("picture_and_sound", given, ".ps-picture", 1) for given in (
        {"items": [{"gray": [BAD, None], "steps": [None, {"label": BAD}]}]},
        {"items": [{"gray": ["f"], "kind": BAD, "grid": ["NaN", 1e9],
                    "steps": [{"box": [3, "x"], "thousandths": [{}, 1e308]}]}],
         "item": "NaN", "step": {}},
    )),
    *(("cost_calculator", given, "text=There is no", 1) for given in (
        {}, {"models": [None, 3], "devices": "x"}, {"models": [{"name": BAD}]},
    )),
    *(("attention_map", given, "text=no example", 1) for given in (
        {"examples": x, "layer": 9, "head": None, "heads": "all"}
        for x in (None, [], [{}], [{"weights": 3}])
    )),
    *(("translation_map", given, "text=no example", 1) for given in (
        {"examples": x, "layer": 9, "head": None}
        for x in (None, [], [{}], [{"cross": 3}], [{"source": ["a"]}])
    )),
]  # fmt: skip


@pytest.mark.parametrize("stem", STEMS)
def test_two_widgets_on_one_page_share_no_id(shown, stem):
    page = shown(STATES[stem], stem, copies=2)
    page.wait_for_selector("[data-state] >> nth=1", state="attached")
    ids = page.eval_on_selector_all("[id]", "all => all.map(e => e.id)")
    assert len(ids) == len({*ids})
    first, second = page.eval_on_selector_all(
        "[data-book-widget]",
        """mounts => mounts.map(m => [...m.querySelectorAll("[name]")]
            .map(e => e.name))""",
    )
    assert not {*first} & {*second}
    assert first or stem != "quiz"


@pytest.fixture(scope="module")
def seen():
    """What was measured on one page per widget, shared by many tests."""
    return {}


THEMES = [
    ("data-theme=dark", "light", True),
    ("data-theme=light", "dark", False),
    ("theme=dark", "light", True),
    ("", "dark", True),
    ("", "light", False),
]
COLOR = """(theme) => {
  const [name, value] = theme.split("=");
  if (name) document.documentElement.setAttribute(name, value);
  const shown = document.querySelector("[data-book-widget] > .live > *");
  const { color } = getComputedStyle(shown);
  if (name) document.documentElement.removeAttribute(name);
  return color;
}"""


def read_colors(page):
    """Return an open widget's color by the page's and the system's theme."""
    found = {}
    for theme, scheme, _ in THEMES:
        page.emulate_media(color_scheme=scheme)
        found[theme, scheme] = page.evaluate(COLOR, theme)
    return found


@pytest.mark.parametrize(("theme", "scheme", "dark"), THEMES)
@pytest.mark.parametrize("stem", STEMS)
def test_light_and_dark_follow_the_page(shown, seen, stem, theme, scheme, dark):
    if stem not in seen:
        seen[stem] = read_colors(shown(STATES[stem], stem))
    color = seen[stem][theme, scheme]
    assert (color == "rgb(230, 232, 235)") == dark


@pytest.mark.parametrize("stem", STEMS)
def test_every_control_has_an_accessible_name(shown, stem):
    page = shown(STATES[stem], stem)
    controls = 0
    for role in ROLES:
        found = page.get_by_role(role).count()
        named = page.get_by_role(role, name=re.compile(r"\S")).count()
        assert named == found, role
        controls += found
    assert controls


@pytest.mark.parametrize(
    ("stem", "motion"),
    [(stem, "reduce") for stem in STEMS] + [(stem, "no-preference") for stem in STILL],
)
def test_nothing_moves_by_itself(shown, stem, motion):
    page = shown(STATES[stem], stem)
    page.emulate_media(reduced_motion=motion)
    page.evaluate(USE)
    assert page.evaluate("document.getAnimations().length") == 0
    assert page.wrong == []


PHONES = (320, 390)
ON_PHONES = {
    **{stem: (stem, STATES[stem]) for stem in STEMS},
    **{f"wide {stem}": (stem, x.state()) for stem, x in WIDE.items()},
}


def measure_on_phones(page):
    """Return an open page's width and its errors on each phone."""
    found = {}
    for width in PHONES:
        page.set_viewport_size({"width": width, "height": 640})
        needed = page.evaluate("document.documentElement.scrollWidth")
        found[width] = needed, [*page.wrong]
    return found


@pytest.mark.parametrize("width", PHONES)
@pytest.mark.parametrize("case", ON_PHONES)
def test_it_fits_a_phone_without_errors(shown, seen, case, width):
    if (case, "phones") not in seen:
        stem, state = ON_PHONES[case]
        seen[case, "phones"] = measure_on_phones(shown(state, stem))
    needed, wrong = seen[case, "phones"][width]
    assert needed <= width
    assert wrong == []


@pytest.mark.parametrize(("stem", "state", "selector", "count"), INVALID)
def test_invalid_input_is_drawn_or_reported(shown, stem, state, selector, count):
    page = shown(state, stem)
    place = page.locator("[data-book-widget]")
    assert place.locator(selector).count() == count
    page.evaluate(USE)
    assert place.locator("img").count() == 0
    assert "NaN" not in place.inner_text()
    assert page.wrong == []
