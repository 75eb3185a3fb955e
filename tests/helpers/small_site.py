"""Build a site of one page with some parts of the book's Sphinx extension."""

import re
import subprocess
import sys

CONFIG = """\
extensions = {extensions!r}
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "{renderer}"
html_theme = "basic"
"""


def build_site(folder, text, parts):
    """Build the page and return the finished process."""
    (folder / "index.md").write_text(text, "utf8")
    settings = CONFIG.format(
        extensions=["myst_parser", *(f"workshop.book.{x}" for x in parts)],
        renderer="mathml" if "math" in parts else "mathjax",
    )
    (folder / "conf.py").write_text(settings, "utf8")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q"]
    return subprocess.run(
        [*command, str(folder), str(folder / "out")],
        capture_output=True,
        text=True,
    )


def read_body(folder) -> str:
    """Return the HTML of the page's text."""
    page = (folder / "out/index.html").read_text("utf8")
    return re.search(r'<div class="body".*?>(.*)</section>', page, re.S)[1]
