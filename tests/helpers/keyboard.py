"""An open page by keyboard alone, without motion, on paper: what is amiss."""

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
# What a widget shows, and what it has announced.
STATE = """([place]) => [
  place.querySelector(".live").innerHTML
    + [...place.querySelectorAll("input, select")].map(
      (e) => `${e.value} ${e.checked}`).join(),
  [...place.querySelectorAll("[role=status], [aria-live]")]
    .map((e) => e.textContent).join("|"),
]"""
# A prediction answered by key uncovers a widget, which is mounted a bit later.
MOUNTED = "([place]) => place.dataset.state || place.closest('.covered')"
KEYS = {
    "range": ["ArrowRight"],
    "radio": ["Space", "Enter"],
    "checkbox": ["Space"],
    "SELECT": ["ArrowDown"],
    "SUMMARY": ["Enter", "Enter"],
    "BUTTON": ["Enter", "ArrowRight"],
    "DIV": ["ArrowRight"],
    "TEXTAREA": [],
    "A": [],
}
MOVING = """() => [...document.querySelectorAll("*")].filter((e) => {
  const s = getComputedStyle(e);
  return parseFloat(s.transitionDuration) > 0
    || parseFloat(s.animationDuration) > 0 || s.scrollBehavior === "smooth";
}).map((e) => e.outerHTML.slice(0, 80))"""
CUT = """() => [...document.querySelectorAll("article *")].filter((e) =>
  ["auto", "scroll", "hidden"].includes(getComputedStyle(e).overflowX)
  && e.checkVisibility() && e.scrollWidth > e.clientWidth + 1
).map((e) => e.outerHTML.slice(0, 120))"""
COLOURS = """() => ["color", "backgroundColor"].map(
  (what) => getComputedStyle(document.body)[what])"""


def walk_widgets(page):
    """Walk through every widget with Tab, press keys; tell what is amiss."""
    return [
        f"{place.get_attribute('data-book-widget')}: {amiss}"
        for place in page.query_selector_all("[data-book-widget]")
        for amiss in walk_widget(page, place)
    ]


def walk_widget(page, place):
    page.wait_for_function(MOUNTED, arg=[place])
    if page.evaluate(FIRST, [place]) == 0:
        yield "nothing to reach"
    (before, _), messages = page.evaluate(STATE, [place]), set()
    changed = 0
    for _ in range(60):
        page.keyboard.press("Tab")
        stop = page.evaluate(STOP, [place])
        if stop is None:
            break
        if not stop["shown"]:
            yield f"no focus seen on {stop['what']}"
        if not stop["name"]:
            yield f"no name on {stop['what']}"
        after = before  # where no key is pressed
        for key in KEYS[stop["kind"]]:
            page.keyboard.press(key)
            after, message = page.evaluate(STATE, [place])
            messages.add(message)
        if stop["kind"] == "DIV" and after == before:
            yield f"no arrow key changes {stop['what']}"
        changed += after != before
        before = after
    if changed == 0:
        yield "no key changes it"
    if len(messages) < 2:
        yield "nothing is announced"


def find_motion(page):
    """Return what moves for a reader who asked for calm."""
    page.emulate_media(reduced_motion="reduce")
    moving = page.evaluate(MOVING)
    page.emulate_media(reduced_motion="null")
    return moving


def check_print(page):
    """Return how a page looks on paper: A4, margins of 1 cm."""
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 720, "height": 1000})
    gone = (".live", ".top", "#menu", "#sections", ".copy", ".turn")
    found = {
        "left": [x for x in gone if page.locator(f"{x}:visible").count()],
        "places": [
            len(place.inner_text().strip())
            for place in page.locator("[data-book-widget]").all()
        ],
        "cut": page.evaluate(CUT),
        "colours": page.evaluate(COLOURS),
    }
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(media="null")
    return found


def drag_by_touch(page, box, distance):
    """Drag the middle of a box downwards with one finger, in two moves."""
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    send = page.context.new_cdp_session(page).send
    moves = ("touchStart", 0), ("touchMove", distance / 2)
    for kind, dy in (*moves, ("touchMove", distance)):
        send(
            "Input.dispatchTouchEvent",
            {"type": kind, "touchPoints": [{"x": x, "y": y + dy}]},
        )
    send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
