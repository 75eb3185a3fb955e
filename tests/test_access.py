"""By keyboard, without motion, on paper: every widget of every built page.

`make book` comes first.
"""

import pytest

from built import CHAPTERS, with_widget

pytestmark = pytest.mark.browser
each_place = pytest.mark.parametrize("name", with_widget())

FIRST = """([place]) => {
  const what = "a[href], button, input, select, textarea, summary, [tabindex]";
  const all = [...place.querySelectorAll(what)].filter((e) =>
    e.checkVisibility() && e.tabIndex >= 0);
  const mark = document.createElement("span");
  mark.tabIndex = -1;
  place.prepend(mark);
  mark.focus();
  return all.length;
}"""
STOP = """([place]) => {
  const e = document.activeElement;
  if (!place.contains(e)) return null;
  const style = getComputedStyle(e);
  return {
    what: e.outerHTML.slice(0, 80),
    kind: e.type === "range" || e.type === "radio" || e.type === "checkbox"
      ? e.type : e.tagName,
    shown: e.matches(":focus-visible") && (style.boxShadow !== "none"
      || (style.outlineStyle !== "none"
        && parseFloat(style.outlineWidth) >= 2)),
    name: Boolean((e.ariaLabel || e.title || e.innerText
      || [...(e.labels ?? [])].map((l) => l.textContent).join("")).trim()),
  };
}"""
STATE = """([place]) => place.querySelector(".live").innerHTML
  + [...place.querySelectorAll("input, select")].map(
    (e) => `${e.value} ${e.checked}`).join()"""
SAID = """([place]) => [...place.querySelectorAll("[role=status], [aria-live]")]
  .map((e) => e.textContent).join("|")"""
KEYS = {
    "range": ["ArrowRight"],
    "radio": ["Space", "Enter"],
    "checkbox": ["Space"],
    "SELECT": ["ArrowDown"],
    "SUMMARY": ["Enter", "Enter"],
    "BUTTON": ["Enter", "ArrowRight"],
    "TEXTAREA": [],
    "A": [],
}


@each_place
def test_the_keyboard_alone_reaches_and_works_every_widget(opened, name):
    page = opened(name)
    for place in page.query_selector_all("[data-book-widget]"):
        stem = place.get_attribute("data-book-widget")
        assert page.evaluate(FIRST, [place]) > 0, stem
        before, said = page.evaluate(STATE, [place]), set()
        changed = 0
        for _ in range(60):
            page.keyboard.press("Tab")
            stop = page.evaluate(STOP, [place])
            if stop is None:
                break
            assert stop["shown"], f"{stem}: no focus seen on {stop['what']}"
            assert stop["name"], f"{stem}: no name on {stop['what']}"
            for key in KEYS[stop["kind"]]:
                page.keyboard.press(key)
                said.add(page.evaluate(SAID, [place]))
            after = page.evaluate(STATE, [place])
            changed += after != before
            before = after
        assert changed > 0, f"{stem}: no key changes it"
        assert len(said) > 1, f"{stem}: nothing is announced"
        assert page.evaluate(STOP, [place]) is None or changed > 20, stem
    assert page.wrong == []


@each_place
def test_nothing_moves_for_those_who_asked_for_calm(opened, name):
    page = opened(name, reduced_motion="reduce")
    moving = page.evaluate(
        """() => [...document.querySelectorAll("*")].filter((e) => {
          const s = getComputedStyle(e);
          return parseFloat(s.transitionDuration) > 0
            || parseFloat(s.animationDuration) > 0
            || s.scrollBehavior === "smooth";
        }).map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert moving == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_on_paper_widgets_become_figures_and_nothing_is_cut(opened, name):
    page = opened(name, color_scheme="dark")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 720, "height": 1000})  # A4, 1 cm margins
    for what in (".live", ".top", "#menu", "#sections", ".copy", ".turn"):
        assert page.locator(f"{what}:visible").count() == 0, what
    for place in page.locator("[data-book-widget]").all():
        assert len(place.inner_text().strip()) > 40
    cut = page.evaluate(
        """() => [...document.querySelectorAll("article *")].filter((e) =>
          ["auto", "scroll", "hidden"].includes(getComputedStyle(e).overflowX)
          && e.checkVisibility() && e.scrollWidth > e.clientWidth + 1
        ).map((e) => e.outerHTML.slice(0, 120))"""
    )
    assert cut == []
    colours = page.evaluate(
        """() => ["color", "backgroundColor"].map(
          (what) => getComputedStyle(document.body)[what])"""
    )
    assert colours == ["rgb(27, 31, 36)", "rgb(255, 255, 255)"]
