"""A widget by keyboard and by touch alone: what is amiss."""

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


def walk_widget(page, place):
    """Walk through a widget with Tab, press keys; yield what is amiss."""
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
