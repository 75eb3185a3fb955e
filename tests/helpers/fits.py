"""Whether all of a page fits: no text or control spills, is cut or overlaps."""

from contextlib import contextmanager

from fonts import FACES, apply_fonts

WIDTHS = (320, 390, 1280)
SCALES = (1, 2)

# Sizes that follow the window's width (a heading's) grow a little less.
GROWN = 1.7

# Folded content is measured as well: opened, a page shows all that it shows
# when it is closed, and more. Menus lie over the page, and stay closed.
OPEN = """(mark) => {
  for (const e of document.querySelectorAll("main details:not([open])")) {
    e.setAttribute(mark, "");
    e.open = true;
  }
}"""
CLOSE = """(mark) => {
  for (const e of document.querySelectorAll(`[${mark}]`)) {
    e.open = false;
    e.removeAttribute(mark);
  }
}"""
MARK = "data-opened-by-test"

UNFIT = """async ([scale, grown]) => {
  await document.fonts.ready;
  const frame = () => new Promise((then) => requestAnimationFrame(then));
  await frame();
  await frame();
  const found = new Set();
  const known = new Map();
  const of = (e) => {
    if (!known.has(e)) {
      const s = getComputedStyle(e);
      const box = e.getBoundingClientRect();
      known.set(e, { s, box, in: s.display.startsWith("inline")
        && !s.display.includes("-") || s.display === "contents",
        scrolls: ["auto", "scroll"].includes(s.overflowX),
        cuts: ["hidden", "clip"].includes(s.overflowX) });
    }
    return known.get(e);
  };
  const name = (e) => e.tagName.toLowerCase()
    + [...e.classList].map((c) => `.${c}`).join("");
  const say = (what, e, ...more) => found.add(
    [what, name(e), ...more].join(" "));
  const seen = new Map();
  const shown = (e) => {
    if (!seen.has(e)) seen.set(e, e.checkVisibility(
      { opacityProperty: true, visibilityProperty: true }));
    return seen.get(e);
  };
  const view = document.documentElement;
  const wide = document.documentElement.clientWidth;
  const over = view.scrollWidth - innerWidth;
  if (over > 0) found.add(`the page is ${over} px too wide`);

  // Where a box is placed by its data, or stays while the rest scrolls, it
  // may lie over others.
  const free = new Map();
  const placed = (e) => {
    if (!e || e === document.body) return false;
    if (!free.has(e)) free.set(e, e.style.left !== "" || placed(e.parentElement)
      || ["sticky", "fixed"].includes(of(e).s.position));
    return free.get(e);
  };

  // What of a box can be seen, from the inside out; null for what only a
  // screen reader is told. `slack`: what letters may lean over their box.
  const inside = (box, start, what) => {
    let { left, right, top, bottom } = box;
    let jump = false;
    let scrolled = false;
    for (let e = start; e && e !== document.body; e = e.parentElement) {
      const { s, box: b, in: inline, scrolls, cuts } = of(e);
      if (s.clipPath !== "none") return null;
      if (inline) continue;
      const slack = 2;
      const spills = right > b.right + slack || left < b.left - slack;
      if (jump && s.position === "static") continue;
      if (scrolled) continue;
      if (scrolls) {
        scrolled = true; // what is seen of it ends where the box does
        left = Math.max(left, b.left);
        right = Math.min(right, b.right);
        if (right <= left) return null;
      } else if (spills && cuts && s.textOverflow !== "ellipsis")
        say("cut:", e, "around", name(start), what);
      else if (spills && !cuts) {
        say("spilled:", e, "by", name(start), what);
        return null; // what is around it would be told as well
      }
      if (cuts && s.overflowY !== "visible" && (bottom > b.bottom + slack
        || top < b.top - slack))
        say("cut below:", e, "around", name(start), what);
      jump = ["absolute", "fixed"].includes(s.position);
    }
    if (left < -1 || right > wide + 1) say("outside:", start, what);
    return { left, right, top, bottom };
  };

  // A shortened word is none lost where it is also shown in full.
  const whole = (e) => [...(e.closest("[data-book-widget]") ?? document)
    .querySelectorAll("bdi")].some((o) => o !== e && shown(o)
      && o.textContent === e.textContent && o.scrollWidth <= o.clientWidth + 1);

  const boxes = [];
  const small = [];
  const sizes = (window.testSizes ??= {})[innerWidth] ??= new WeakMap();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (texts.nextNode()) {
    const node = texts.currentNode;
    const e = node.parentElement;
    if (!node.data.trim() || e.closest("math, script, style, svg, option")
      || !shown(e)) continue;
    const { s } = of(e);
    if (s.textOverflow === "ellipsis" && e.scrollWidth > e.clientWidth + 1
      && of(e).cuts && !whole(e)) say("shortened:", e, node.data);
    const size = parseFloat(s.fontSize);
    if (scale === 1) sizes.set(e, size);
    else if (sizes.has(e) && size < grown * sizes.get(e))
      say("not larger:", e, size);
    if (e.closest("pre")) continue;
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      if (box.width < 1) continue;
      const third = box.height / 3.5;
      const middle = { left: box.left, right: box.right,
        top: box.top + third, bottom: box.bottom - third };
      const kept = inside(middle, e, node.data.trim().slice(0, 30));
      if (!kept) break;
      if (!placed(e)) boxes.push({ ...kept, e });
    }
  }
  const things = "math, button, select, input, textarea, canvas, img, pre";
  for (const e of document.querySelectorAll(things)) {
    if (!shown(e)) continue;
    const { box } = of(e);
    if (box.width < 1 || box.height < 1) continue;
    const kept = inside(box, e.parentElement, name(e));
    if (kept && !placed(e) && !e.matches("canvas, pre, math"))
      boxes.push({ ...kept, e });
  }
  boxes.sort((a, b) => a.top - b.top);
  const open = [];
  for (const b of boxes) {
    for (let i = open.length - 1; i >= 0; i -= 1) {
      const a = open[i];
      if (a.bottom <= b.top) { open.splice(i, 1); continue; }
      if (a.e === b.e || a.e.contains(b.e) || b.e.contains(a.e)) continue;
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 2 && down > 2) say("overlap:", a.e, "and", name(b.e));
    }
    open.push(b);
  }
  return [...found];
}"""


def find_unfit(page, face):
    """Return what does not fit an open page, by size of text and width."""
    apply_fonts(page, face)
    session = page.context.new_cdp_session(page)
    before = page.viewport_size
    found = {}
    # Widths fall, then rise, so each step changes the width or the text size.
    for scale, widths in zip(SCALES, (WIDTHS[::-1], WIDTHS), strict=True):
        sizes = {"standard": 16 * scale, "fixed": 13 * scale}
        session.send("Page.setFontSizes", {"fontSizes": sizes})
        for width in widths:
            page.set_viewport_size({"width": width, "height": 800})
            found[scale, width] = page.evaluate(UNFIT, [scale, GROWN])
    sizes = {"standard": 16, "fixed": 13}
    session.send("Page.setFontSizes", {"fontSizes": sizes})
    session.detach()
    page.set_viewport_size(before)
    return found


@contextmanager
def unfolded(page):
    """Open every folded part of a loaded page; fold them again afterwards."""
    page.evaluate(OPEN, MARK)
    yield
    page.evaluate(CLOSE, MARK)


def find_all_unfit(page):
    """Return what does not fit an open page, by font, size and width."""
    with unfolded(page):
        return {face: find_unfit(page, face) for face in FACES}
