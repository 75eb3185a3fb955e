"""axe-core, as its wheel carries it: run on an open page."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

# Code's coloured words are some ten thousand: their contrast is held by a test
# of our own, which looks at every text in a hundredth of the time.
RUN = """async () => {
  const how = { resultTypes: ["violations"] };
  const rest = { rules: { "color-contrast": { enabled: false } } };
  const colours = { runOnly: ["color-contrast"] };
  const all = await axe.run(document, { ...how, ...rest });
  const text = { exclude: [["pre"], ["math"]] };
  const seen = await axe.run(text, { ...how, ...colours });
  return [...all.violations, ...seen.violations];
}"""


@cache
def source() -> str:
    place = Path(find_spec("axe_playwright_python").origin)
    return (place.parent / "axe.min.js").read_text("utf8")


def findings(page) -> list[tuple]:
    """Return what is serious or critical: impact, rule, where."""
    page.evaluate(source())
    return [
        (rule["impact"], rule["id"], node["target"])
        for rule in page.evaluate(RUN)
        for node in rule["nodes"]
        if rule["impact"] in {"serious", "critical"}
    ]
