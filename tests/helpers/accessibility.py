"""axe-core, as its wheel carries it: run on an open page."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

# What depends on colours. Code's coloured words are some ten thousand, and the
# rows of the page of named mistakes a thousand: there axe looks at the first
# rows of each table. The contrast of every text, those included, is held by a
# test of our own, in a hundredth of the time.
COLOURS = """async () => {
  const runOnly = ["color-contrast", "link-in-text-block"];
  const text = { exclude: [["pre"], ["math"], ["tbody > tr:nth-child(n+6)"]] };
  const how = { resultTypes: ["violations"], runOnly };
  return (await axe.run(text, how)).violations;
}"""
# For axe, code is plain text: spans that have a class and nothing else can
# break none of its other rules, and are a third of a chapter's elements.
PLAIN = """() => {
  for (const code of document.querySelectorAll("pre")) {
    const bare = [...code.querySelectorAll("*")].every((e) =>
      e.matches("span") && e.getAttributeNames().join() === "class");
    if (bare) code.textContent = code.textContent;
  }
}"""
REST = """async () => {
  const off = { enabled: false };
  const rules = { "color-contrast": off, "link-in-text-block": off };
  const how = { resultTypes: ["violations"], rules };
  return (await axe.run(document, how)).violations;
}"""


@cache
def read_axe() -> str:
    place = Path(find_spec("axe_playwright_python").origin)
    return (place.parent / "axe.min.js").read_text("utf8")


def check_colours(page):
    """Return what axe says of colours."""
    return page.evaluate(COLOURS)


def check_everything(page):
    """Return all that axe says."""
    return [*page.evaluate(REST), *check_colours(page)]


def run_axe(page, rules=check_everything) -> list[tuple]:
    """Return what is serious or critical: impact, rule, where."""
    if not page.evaluate("() => Boolean(window.axe)"):
        page.evaluate(read_axe())
    return [
        (rule["impact"], rule["id"], node["target"])
        for rule in rules(page)
        for node in rule["nodes"]
        if rule["impact"] in {"serious", "critical"}
    ]
