"""axe-core, as its wheel carries it: run on an open page."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

AXE = """async (rules) => {
  const how = { resultTypes: ["violations"], preload: false };
  if (rules) how.runOnly = rules;
  return (await axe.run({ exclude: ["math"] }, how)).violations;
}"""
COLOURS = ["color-contrast", "link-in-text-block"]


@cache
def read_axe() -> str:
    place = Path(find_spec("axe_playwright_python").origin)
    return (place.parent / "axe.min.js").read_text("utf8")


def run_axe(page, rules=None) -> list[tuple]:
    """Return what is serious or critical: impact, rule, where."""
    if not page.evaluate("() => Boolean(window.axe)"):
        page.evaluate(read_axe())
    return [
        (rule["impact"], rule["id"], node["target"])
        for rule in page.evaluate(AXE, rules)
        for node in rule["nodes"]
        if rule["impact"] in {"serious", "critical"}
    ]
