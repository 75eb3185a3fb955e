"""axe-core, as its wheel carries it: run on an open page."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

# A chapter has thousands of texts in a few dozen styles, and axe takes a
# millisecond for each. Texts count as alike if their colour, size, weight and
# effects are equal, and so are the backgrounds behind them. Of such texts, axe
# checks the first three. It always checks a text that extends beyond a painted
# ancestor, that a painted element overlaps, that belongs to a control, or that
# has a role or an id. It checks no contrast in code and formulas. Our own test
# checks the contrast of every text, and takes a hundredth of the time.
MARK_ALIKE = """async () => {
  // Colours may fade for a quarter of a second after a change of scheme.
  const ends = document.getAnimations().map((a) => a.finished);
  await Promise.race([Promise.allSettled(ends),
    new Promise((then) => setTimeout(then, 2000))]);
  const CONTROLS = "button, label, fieldset, select, textarea";
  const ALWAYS = "[role], [id], [aria-disabled]";
  const DRAWN = `${CONTROLS}, input, progress, meter, img, canvas, svg, video,`
    + " iframe, object";
  const FIRST = 3, ROW = 64;
  const isClear = (c) => c === "transparent" || /, 0\\)$|\\/ 0\\)$/.test(c);
  for (const e of document.querySelectorAll("[data-alike]"))
    e.removeAttribute("data-alike");
  const LEFT_OUT = "pre, pre *, math, math *";
  for (const e of document.querySelectorAll(LEFT_OUT))
    e.setAttribute("data-alike", "");

  const known = new Map();
  const look = (e) => {
    if (!e) return { chain: "", painted: [] };
    if (known.has(e)) return known.get(e);
    const above = look(e.parentElement);
    const s = getComputedStyle(e);
    const background = [s.backgroundColor, s.backgroundImage, s.backgroundClip];
    const bare = isClear(s.backgroundColor) && s.backgroundImage === "none";
    const own = bare ? [] : background;
    let drawn = !bare || s.boxShadow !== "none" || e.matches(DRAWN);
    for (const [what, usual] of [["opacity", "1"], ["filter", "none"],
      ["mixBlendMode", "normal"], ["clipPath", "none"], ["maskImage", "none"]])
      if (s[what] !== usual) own.push(what, s[what]);
    for (const part of ["::before", "::after"]) {
      const p = getComputedStyle(e, part);
      if (["none", "normal"].includes(p.content)) continue;
      if (isClear(p.backgroundColor) && p.backgroundImage === "none") continue;
      own.push(part, p.backgroundColor, p.backgroundImage, p.position);
      drawn = true;
    }
    const found = { s, drawn,
      chain: own.length ? `${above.chain}|${own.join()}` : above.chain,
      painted: bare ? above.painted : [...above.painted, e] };
    known.set(e, found);
    return found;
  };

  const boxes = new Map();
  const box = (e) => {
    if (!boxes.has(e)) boxes.set(e, e.getBoundingClientRect());
    return boxes.get(e);
  };
  const rows = new Map();
  const listRows = (b) => {
    const first = Math.floor(b.top / ROW);
    const count = Math.floor(b.bottom / ROW) - first + 1;
    return Array.from({ length: count }, (_, i) => first + i);
  };
  const shown = [...document.body.querySelectorAll("*")].filter((e) =>
    !e.matches("pre *, math *, script, style, noscript")
    && e.checkVisibility());
  for (const e of shown) {
    if (!look(e).drawn) continue;
    const b = box(e);
    if (!b.width || !b.height) continue;
    for (const y of listRows(b)) {
      if (!rows.has(y)) rows.set(y, []);
      rows.get(y).push(e);
    }
  }
  const meets = (a, b) => a.left < b.right - 1 && b.left < a.right - 1
    && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const holds = (a, b) => a.left <= b.left + 1 && a.right >= b.right - 1
    && a.top <= b.top + 1 && a.bottom >= b.bottom - 1;

  const counts = new Map();
  const range = document.createRange();
  for (const e of shown) {
    const texts = [...e.childNodes].filter((n) =>
      n.nodeType === Node.TEXT_NODE && n.data.trim());
    if (!texts.length || e.matches(`${LEFT_OUT}, ${ALWAYS}`)
      || e.closest(CONTROLS)) continue;
    const { s, chain, painted } = look(e);
    const lies = texts.every((node) => {
      range.selectNodeContents(node);
      return [...range.getClientRects()].every((r) =>
        painted.every((p) => p === document.body || holds(box(p), r))
        && !listRows(r).some((y) => rows.get(y)?.some((p) =>
          !p.contains(e) && meets(box(p), r))));
    });
    if (!lies) continue;
    const said = texts.map((n) => n.data).join("").replace(/\\s/g, "");
    const key = [chain, s.color, s.fontSize, s.fontWeight, s.textShadow,
      s.webkitTextFillColor, s.webkitTextStroke, s.visibility,
      said.length > 1, /[a-z0-9]/i.test(said)].join();
    const count = (counts.get(key) ?? 0) + 1;
    counts.set(key, count);
    if (count > FIRST) e.setAttribute("data-alike", "");
  }
  axe.configure({ rules: [
    { id: "color-contrast", selector: ":not([data-alike])" },
  ] });
}"""
# What depends on colours, or all rules.
COLOURS = '{ type: "rule", values: ["color-contrast", "link-in-text-block"] }'
AXE = """async () => {
  const how = { resultTypes: ["violations"], runOnly: RULES };
  return (await axe.run(document, how)).violations;
}"""
# Replaces code and formulas by plain text, because they are two thirds of a
# chapter's elements. A span with only a class can break only the colour rules;
# a part of a formula can break no rule, unless it has a role, an id, a link, a
# tabindex or a name.
PLAIN = """() => {
  const SPECIAL = /^(id|role|href|tabindex|alt|title|lang|aria-.*)$/;
  for (const formula of document.querySelectorAll("math")) {
    const bare = [...formula.querySelectorAll("*")].every((e) =>
      e.namespaceURI === formula.namespaceURI
      && !e.getAttributeNames().some((name) => SPECIAL.test(name)));
    if (bare) formula.textContent = formula.textContent;
  }
  for (const code of document.querySelectorAll("pre")) {
    const bare = [...code.querySelectorAll("*")].every((e) =>
      e.matches("span") && e.getAttributeNames().join() === "class");
    if (bare) code.textContent = code.textContent;
  }
}"""


@cache
def read_axe() -> str:
    place = Path(find_spec("axe_playwright_python").origin)
    return (place.parent / "axe.min.js").read_text("utf8")


def run_axe(page, colours_only=False) -> list[tuple]:
    """Return what is serious or critical: impact, rule, where."""
    if not page.evaluate("() => Boolean(window.axe)"):
        page.evaluate(read_axe())
    page.evaluate(MARK_ALIKE)
    rules = COLOURS if colours_only else "undefined"
    return [
        (rule["impact"], rule["id"], node["target"])
        for rule in page.evaluate(AXE.replace("RULES", rules))
        for node in rule["nodes"]
        if rule["impact"] in {"serious", "critical"}
    ]
