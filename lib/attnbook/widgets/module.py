"""A widget's module: what several widgets share, and then its own script.

Neither a notebook's front end nor a page opened from a folder can load one
script from another, so the two are joined here, into one text.

Source: anywidget's front-end module, https://anywidget.dev/en/afm
"""

from pathlib import Path

SHARED = Path(__file__).with_name("shared.js")


def read_module(script: Path) -> str:
    """Return the text of a widget's module."""
    return SHARED.read_text("utf8") + "\n" + script.read_text("utf8")


def read_modules() -> dict[str, str]:
    """Return the text of every widget's module, by its stem."""
    scripts = sorted(SHARED.parent.glob("*.js"))
    return {x.stem: read_module(x) for x in scripts if x != SHARED}
