"""Mounts: the notebooks' widgets alive in the built page, without a kernel.

Chromium refuses to import a module from file://, so each widget's module is
shipped as a function in a classic script: the same text, its exports returned.
A page loads it when the reader comes near the first such widget.

Source: anywidget's front-end module, https://anywidget.dev/en/afm
"""

import json
import re
from pathlib import Path

from attnbook.widgets.mount import SHARED, read_modules

WIDGETS = SHARED.parent
MOUNT = Path(__file__).with_name("mount.js")
MOUNTED = re.compile(r'data-book-widget="(\w+)"')
EXPORT = re.compile(r"^export (?=(?:async )?function|const |let |class )", re.M)
DEFAULT = re.compile(r"^export default (?=\{)", re.M)


def make_classic_script(stem: str, module: str) -> str:
    """Return a widget's module, given as text, as a classic script."""
    text = EXPORT.sub("", module)
    text, count = DEFAULT.subn("return ", text)
    if count != 1 or re.search(r"^(?:import|export)\b", text, re.M):
        raise ValueError(
            f"{stem} must import nothing, export functions and values, "
            f"and export one object by default; it does so {count} times"
        )
    return (
        f"(globalThis.bookModules ??= {{}})[{json.dumps(stem)}] = () => {{\n"
        f'"use strict";\n{text}}};\n'
    )


def write_modules(app, config) -> None:
    """Write each widget's script and style where Sphinx copies them from."""
    out = Path(app.outdir).parent / "_widgets" / "widgets"
    out.mkdir(parents=True, exist_ok=True)
    for stem, text in read_modules().items():
        (out / f"{stem}.js").write_text(make_classic_script(stem, text), "utf8")
    for style in WIDGETS.glob("*.css"):
        (out / style.name).write_text(style.read_text("utf8"), "utf8")
    (out / "mount.js").write_text(MOUNT.read_text("utf8"), "utf8")
    # Jupyter Book 1 puts every script under _static into every page; a folder
    # added here, after it has looked, escapes that.
    config.html_static_path.append(str(out.parent))


def load_modules(app, pagename, templatename, context, doctree) -> None:
    """Load, on each page, the styles of its widgets and what mounts them."""
    names = sorted(set(MOUNTED.findall(context.get("body") or "")))
    book = context["book"]
    if names:
        book["styles"].append("widgets/shared.css")
    for name in names:
        if (WIDGETS / f"{name}.css").exists():
            book["styles"].append(f"widgets/{name}.css")
    if names:
        book["scripts"].append("widgets/mount.js")


def setup(app) -> None:
    app.connect("config-inited", write_modules, priority=900)
    app.connect("html-page-context", load_modules, priority=900)
