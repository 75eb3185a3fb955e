"""Every widget under bad input, from the states that the built pages hold.

`make book` comes first. Each state is spoiled in many ways; the widget must
still stand, complain of nothing, and show labels as text.
"""

import copy
import json

import pytest

from attnbook.widgets.mount import render_mount
from widget_states import FOUND
from workshop.book.mounts import MOUNT

pytestmark = pytest.mark.browser

STATES = {s: json.loads(min(texts, key=len)) for s, texts in FOUND.items()}
ODD = [
    '<img src=x onerror="document.title=1">',
    "</script><b>",
    "“q\"'&amp;",
    "بيت",
    "é́́",
    "🙂",
    "",
]


def spoiled(value, text=None, number=None, cut=False):
    """Return a state with texts, numbers or the ends of lists replaced."""
    count = iter(range(10**6))

    def walk(x):
        if isinstance(x, dict):
            return {key: walk(y) for key, y in x.items()}
        if isinstance(x, list):
            kept = x[: max(1, len(x) // 2 + next(count) % 2)] if cut else x
            return [walk(y) for y in kept]
        if isinstance(x, str) and text:
            return text[next(count) % len(text)]
        if isinstance(x, int | float) and number is not None:
            return x if isinstance(x, bool) else number
        return x

    return walk(copy.deepcopy(value))


def ways(state):
    """Return what a state is spoiled to, each under a name."""
    yield "odd texts", spoiled(state, text=ODD)
    yield "ragged", spoiled(state, cut=True)
    for number in ("NaN", "Infinity", "-Infinity", -1, 1e308):
        yield f"numbers {number}", spoiled(state, number=number)
    yield "nothing", {}
    for key in state:
        for other in (None, [], {}, "x", [None], [{}]):
            yield f"{key} {other!r}", {**state, key: other}


def test_the_built_pages_contain_widgets():
    assert {"quiz", "alignment_player", "soft_lookup"} <= {*STATES}


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
  const run = (text) => {
    const script = document.createElement("script");
    script.textContent = text;
    document.body.append(script);
  };
  for (const [what, html] of Object.entries(mounts)) {
    document.body.innerHTML = html;
    run(boot);
    const place = document.querySelector("[data-book-widget]");
    await mounted(place);
    const odd = () => place.querySelectorAll("img, b b").length;
    const before = odd();
    for (const b of place.querySelectorAll("button, [type=checkbox]"))
      b.click();
    await frames();
    if (place.dataset.state !== "ready" || before + odd() > 0
      || document.title !== "page")
      found[what] = [place.dataset.state, before, odd(), document.title];
  }
  return found;
}"""


@pytest.mark.parametrize("stem", sorted(STATES))
def test_a_spoiled_state_is_drawn_or_reported(shown, stem):
    states = dict(ways(STATES[stem]))
    assert len(states) > 7
    page = shown(STATES[stem], stem)
    mounts = {k: render_mount(stem, s, "<p>fallback</p>") for k, s in states.items()}
    message = page.evaluate(SPOIL, [MOUNT.read_text("utf8"), mounts])
    assert message == {}
    assert page.wrong == []


@pytest.mark.parametrize("stem", sorted(FOUND))
def test_no_state_can_end_its_script(stem):
    for text in FOUND[stem]:
        assert "<" not in text
        json.loads(text, parse_constant=pytest.fail)  # NaN is not JSON


def square(count):
    words = [f"word{i}" for i in range(count)]
    rows = [[float(s == t) for s in range(count)] for t in range(count)]
    return {
        "examples": [{"title": "a", "query": words, "weights": [[rows]]}],
        "layer": 0,
        "head": 0,
        "heads": "one",
    }


@pytest.mark.parametrize("count", [1, 512])
def test_maps_of_1_and_of_512_words_respond(shown, count):
    page = shown(square(count), "attention_map")
    page.set_viewport_size({"width": 390, "height": 800})
    page.click(f".am-query button >> nth={count - 1}")
    assert f"word{count - 1}" in page.inner_text("[role=status]")
    over = "document.documentElement.scrollWidth - window.innerWidth"
    assert page.evaluate(over) <= 0
