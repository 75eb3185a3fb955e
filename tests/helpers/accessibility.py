"""axe-core, as its wheel carries it: run on an open page."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

# Two thirds of a chapter's elements are pieces of formulas and of code, which
# axe would look at one by one.
AXE = """async () => {
  const where = { exclude: ["math", "pre span"] };
  const found = await axe.run(where, { resultTypes: ["violations"] });
  return found.violations;
}"""


@cache
def read_axe() -> str:
    place = Path(find_spec("axe_playwright_python").origin)
    return (place.parent / "axe.min.js").read_text("utf8")


def run_axe(page) -> list[tuple]:
    """Return what is serious or critical: impact, rule, where."""
    if not page.evaluate("() => Boolean(window.axe)"):
        page.evaluate(read_axe())
    return [
        (rule["impact"], rule["id"], node["target"])
        for rule in page.evaluate(AXE)
        for node in rule["nodes"]
        if rule["impact"] in {"serious", "critical"}
    ]
