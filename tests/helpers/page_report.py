"""What a visit to a built page finds out; each visit serves many tests."""

import io

from PIL import Image

from accessibility import PLAIN, run_axe
from built_pages import CHAPTERS
from fits import find_unfit, unfolded
from fonts import PROBE, TEXT
from keyboard import check_print, find_motion, walk_widgets

FACTS = """() => {
  const all = (what) => [...document.querySelectorAll(what)];
  const seen = (e) => e.checkVisibility();
  const name = (e) => (e.getAttribute("aria-label") || e.title || e.innerText
    || e.querySelector("img")?.alt
    || document.getElementById(e.getAttribute("aria-labelledby"))?.innerText
    || [...(e.labels ?? [])].map((l) => l.innerText + [...l.querySelectorAll(
      "[aria-label]")].map((x) => x.ariaLabel)).join("")).trim();
  return {
    alts: all("article img").map((i) => i.getAttribute("alt") ?? ""),
    headings: all("h1, h2, h3, h4, h5, h6").filter(seen).map(
      (h) => Number(h.tagName[1])),
    formulas: all("math").length,
    unsaid: all("math").filter((m) => !m.ariaLabel?.trim()).length,
    nameless: all("button, a[href], input, select, textarea, summary").filter(
      (e) => seen(e) && !name(e)
    ).map((e) => e.outerHTML.slice(0, 120)),
    ids: all("[id]").map((e) => e.id),
    ticks: all("label.tick input").length,
    lang: document.documentElement.lang,
    title: document.title,
  };
}"""

CONTRASTS = """() => {
  const parse = (c) => {
    const m = c.match(/[\\d.]+/g).map(Number);
    if (c.startsWith("color("))
      m.splice(0, 3, ...m.slice(0, 3).map((x) => 255 * x));
    return m.length < 4 ? [...m, 1] : m;
  };
  const over = (a, b) => a.map((x, i) => x * a[3] + b[i] * (1 - a[3]));
  const light = (c) => {
    const f = c.slice(0, 3).map((x) => x / 255).map((x) =>
      x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2];
  };
  const colour = (e, what) => parse(getComputedStyle(e)[what]);
  const page = colour(document.body, "backgroundColor");
  const known = new Map();
  const behind = (e) => {
    if (!e) return page;
    if (!known.has(e)) known.set(e,
      over(colour(e, "backgroundColor"), behind(e.parentElement)));
    return known.get(e);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const poor = {};
  let count = 0;
  while (texts.nextNode()) {
    const e = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !e.checkVisibility()) continue;
    if (e.matches("script, style, noscript, annotation, .headerlink")) continue;
    const back = behind(e);
    const two = [light(back), light(over(colour(e, "color"), back))];
    const ratio = (Math.max(...two) + 0.05) / (Math.min(...two) + 0.05);
    count += 1;
    if (ratio < 4.5) poor[`${e.className} ${e.tagName}`] = ratio;
  }
  return [count, poor];
}"""

ROOM = """() => {
  const pre = document.querySelector("div.cell_input pre");
  const style = getComputedStyle(pre);
  const room = pre.clientWidth - parseFloat(style.paddingLeft)
    - parseFloat(style.paddingRight);
  const line = document.createElement("span");
  line.textContent = "0".repeat(80);
  pre.append(line);
  const columns = line.getBoundingClientRect().width;
  line.remove();
  const p = document.querySelector("article > section > p:not([class])");
  const kept = p.innerHTML;
  p.textContent = "an average line of English prose ".repeat(9);
  const all = document.createRange();
  all.selectNodeContents(p);
  const letters = p.textContent.length / all.getClientRects().length;
  p.innerHTML = kept;
  return { room, columns, letters };
}"""

STATES = """() => [...document.querySelectorAll("[data-book-widget]")].filter(
  (e) => e.dataset.state || !e.closest(".covered")).map(
  (e) => `${e.dataset.bookWidget} ${e.dataset.state}`)"""
LAID_OUT = "section { content-visibility: visible !important; }"


def report_page(page, name):
    """Return all that one visit over http finds out about an open page."""
    chapter = name in CHAPTERS
    # As after reading to its end: far parts are laid out.
    page.add_style_tag(content=LAID_OUT)
    found = {"probes": {}, "unfit": {}}
    with unfolded(page):
        for face in ("narrow", "wide"):  # the last one stays
            found["unfit"][face] = find_unfit(page, face)
            found["probes"][face] = page.evaluate(PROBE, TEXT)
    found |= read_facts(page, chapter)
    found["light"] = find_low_contrast(page)
    page.emulate_media(color_scheme="dark")
    found["dark"] = find_low_contrast(page)
    if chapter:
        figure = page.locator("div.cell_output img:visible").first
        found["dark"]["corners"] = read_corners(figure)
        found["paper"] = check_print(page)
    found["moving"] = find_motion(page)
    page.evaluate(PLAIN)  # from here on, code has lost its colours
    found["dark"]["axe"] = run_axe(page, colours_only=True)
    page.emulate_media(color_scheme="light")
    found["light"]["axe"] = run_axe(page)
    page.emulate_media(color_scheme="dark")
    found["walked"] = walk_widgets(page)
    return found


def read_states(page):
    """Return every widget of an open page, with its state."""
    return page.evaluate(STATES)


def read_facts(page, chapter):
    """Return what can be read off an open page."""
    found = page.evaluate(FACTS)
    if chapter:
        found |= page.evaluate(ROOM)
    return found


def find_low_contrast(page):
    """Return which of an open page's texts stand out too little."""
    count, poor = page.evaluate(CONTRASTS)
    behind = "getComputedStyle(document.body).backgroundColor"
    return {"texts": count, "poor": poor, "behind": page.evaluate(behind)}


def read_corners(figure):
    """Return the colours at a shown figure's corners."""
    figure.scroll_into_view_if_needed()
    figure.evaluate("i => i.decode()")
    with Image.open(io.BytesIO(figure.screenshot())) as picture:
        rgb = picture.convert("RGB")
        return {
            f"rgb{rgb.getpixel((x, y))}"
            for x in (3, picture.width - 4)
            for y in (3, picture.height - 4)
        }
