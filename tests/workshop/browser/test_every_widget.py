"""What holds of every widget in a real browser.

`make book` comes first: the states are those that the built pages hold, so a
new widget is tested as soon as a chapter shows it.
"""

import json

import pytest

from attnbook.widgets.mount import render_mount
from built_pages import OVERFLOW, read_widget_states
from keyboard import walk_widget
from widget_examples import WIDE
from workshop.book.mounts import MOUNT

pytestmark = pytest.mark.browser

FOUND = read_widget_states()
STATES = {stem: json.loads(min(texts, key=len)) for stem, texts in FOUND.items()}
LONGEST = {stem: json.loads(max(texts, key=len)) for stem, texts in FOUND.items()}
every_widget = pytest.mark.parametrize("stem", sorted(STATES))


NAMES = """mounts => mounts.map(m => [...m.querySelectorAll("[id], [name]")]
  .flatMap(e => [e.id, e.name]).filter(Boolean))"""


@every_widget
def test_two_widgets_on_one_page_share_no_name(shown, stem):
    page = shown(STATES[stem], stem, copies=2)
    page.wait_for_selector("[data-state] >> nth=1", state="attached")
    first, second = page.eval_on_selector_all("[data-book-widget]", NAMES)
    assert not {*first} & {*second}


COLOR = """(theme) => {
  document.documentElement.dataset.theme = theme;
  const shown = document.querySelector("[data-book-widget] > .live > *");
  const { color } = getComputedStyle(shown);
  delete document.documentElement.dataset.theme;
  return color;
}"""


@every_widget
def test_light_and_dark_follow_the_page_then_the_system(shown, stem):
    page = shown(STATES[stem], stem)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        light, dark, system = (
            page.evaluate(COLOR, theme) for theme in ("light", "dark", "")
        )
        assert (dark, light == dark) == ("rgb(230, 232, 235)", False)
        assert system == {"light": light, "dark": dark}[scheme]


@every_widget
def test_the_keyboard_alone_reaches_and_works_it(shown, stem):
    page = shown(STATES[stem], stem)
    place = page.query_selector("[data-book-widget]")
    assert [*walk_widget(page, place)] == []


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


@every_widget
def test_nothing_moves_for_a_reader_who_asked_for_calm(shown, stem):
    page = shown(STATES[stem], stem)
    page.emulate_media(reduced_motion="reduce")
    page.evaluate(USE)
    assert page.evaluate("document.getAnimations().length") == 0
    assert page.wrong == []


ON_PHONES = {
    **{stem: (stem, state) for stem, state in LONGEST.items()},
    **{f"wide {stem}": (stem, x.state()) for stem, x in WIDE.items()},
}


@pytest.mark.parametrize("case", ON_PHONES)
def test_it_fits_a_phone_with_its_longest_words(shown, case):
    stem, state = ON_PHONES[case]
    page = shown(state, stem, around="<main>{}</main>")
    for width in (390, 320):
        page.set_viewport_size({"width": width, "height": 640})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(OVERFLOW) == []
    assert page.wrong == []


MARKUP = '</script><img src=x onerror="document.title=1">“q"'


def spoil(value):
    """Return a state whose texts are markup, and whose numbers are none."""
    if isinstance(value, dict):
        return {key: spoil(x) for key, x in value.items()}
    if isinstance(value, list):
        return [spoil(x) for x in value]
    if isinstance(value, bool):
        return value
    return MARKUP if isinstance(value, str) else "NaN"


# One page for all: each state is mounted anew, and all its buttons pressed.
SPOIL = """async ([boot, mounts]) => {
  const found = {};
  const frames = () => new Promise((then) =>
    requestAnimationFrame(() => requestAnimationFrame(then)));
  const mounted = (place) => new Promise((then) => {
    const tell = () => place.dataset.state && then();
    new MutationObserver(tell).observe(place, { attributes: true });
    setTimeout(then, 6000);
    tell();
  });
  for (const [what, html] of Object.entries(mounts)) {
    document.body.innerHTML = html;
    const script = document.createElement("script");
    script.textContent = boot;
    document.body.append(script);
    const place = document.querySelector("[data-book-widget]");
    await mounted(place);
    for (const b of place.querySelectorAll("button, [type=checkbox]")) b.click();
    await frames();
    const markup = place.querySelectorAll("img, b b").length;
    if (place.dataset.state !== "ready" || markup || document.title !== "page")
      found[what] = [place.dataset.state, markup, document.title];
  }
  return found;
}"""


@every_widget
def test_a_spoiled_state_is_drawn_or_reported(shown, stem):
    """As from an old notebook, or one that somebody edited by hand."""
    page = shown(STATES[stem], stem)
    state = STATES[stem]
    spoiled = {"all": spoil(state), "nothing": {}}
    spoiled |= {f"no {key}": {**state, key: None} for key in state}
    mounts = {
        what: render_mount(stem, x, "<p>fallback</p>") for what, x in spoiled.items()
    }
    assert page.evaluate(SPOIL, [MOUNT.read_text("utf8"), mounts]) == {}
    assert page.wrong == []
