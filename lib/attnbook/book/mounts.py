"""Mounts: the notebooks' widgets alive in the built page, without a kernel.

Chromium refuses to import a module from file://, so each widget's module is
shipped as a string in a classic script and imported from a Blob; only the
pages on which a widget stands load it.

Chapter: chapters/00_before_you_start
Source: anywidget's front-end module, https://anywidget.dev/en/afm
Axes: none
"""

import json
import re
from pathlib import Path

from attnbook.widgets.module import modules

WIDGETS = Path(__file__).parents[1] / "widgets"
MOUNT = Path(__file__).with_name("mount.js")
PLACE = re.compile(r'data-book-widget="(\w+)"')


def write_modules(app, config) -> None:
    """Write each widget's script and style where Sphinx copies them from."""
    out = Path(app.outdir).parent / "_widgets" / "widgets"
    out.mkdir(parents=True, exist_ok=True)
    for stem, text in modules().items():
        script = (
            "(globalThis.bookModules ??= {})"
            f"[{json.dumps(stem)}] = {json.dumps(text)};\n"
        )
        (out / f"{stem}.js").write_text(script, "utf8")
    for style in WIDGETS.glob("*.css"):
        (out / style.name).write_text(style.read_text("utf8"), "utf8")
    (out / "mount.js").write_text(MOUNT.read_text("utf8"), "utf8")
    # Jupyter Book 1 puts every script under _static into every page; a folder
    # added here, after it has looked, escapes that.
    config.html_static_path.append(str(out.parent))


def load_modules(app, pagename, templatename, context, doctree) -> None:
    """Load, on each page, just the widgets that stand on it."""
    names = sorted(set(PLACE.findall(context.get("body") or "")))
    book = context["book"]
    if names:
        book["styles"].append("widgets/shared.css")
    for name in names:
        book["scripts"].append(f"widgets/{name}.js")
        if (WIDGETS / f"{name}.css").exists():
            book["styles"].append(f"widgets/{name}.css")
    if names:
        book["scripts"].append("widgets/mount.js")


def setup(app) -> None:
    """Connect to Sphinx: before its files are listed, and at every page."""
    app.connect("config-inited", write_modules, priority=900)
    app.connect("html-page-context", load_modules, priority=900)
