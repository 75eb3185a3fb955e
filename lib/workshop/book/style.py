"""Style: one style sheet and two scripts for every page; no file unused."""

import re
from pathlib import Path

from workshop.book.mounts import MOUNTED

STATIC = Path(__file__).with_name("theme") / "static"
NAME = re.compile(r"[\w-]+(?:\.[\w-]+)+")


def drop_unused(app, exception) -> None:
    """Delete what Sphinx and the extensions put there for no page.

    A file is used if a page names it, or a style sheet that is used, or if it
    is the script of one of a page's widgets.
    """
    if exception is not None or app.builder.name != "html":
        return
    root = Path(app.outdir)
    folders = (root / "_static", root / "_images")
    files = [p for f in folders for p in f.rglob("*") if p.is_file()]
    read = [p for p in root.rglob("*.html") if root / "_static" not in p.parents]
    used = set()
    while read:
        text = read.pop().read_text("utf8")
        words = {*NAME.findall(text)}
        words |= {f"{widget}.js" for widget in MOUNTED.findall(text)}
        found = {p for p in files if p.name in words} - used
        used |= found
        read += [p for p in found if p.suffix == ".css"]
    for path in {*files} - used:
        path.unlink()
    for folder in sorted(root.glob("_static/**/"), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


def setup(app) -> None:
    """Connect to the end of the build."""
    app.connect("build-finished", drop_unused, priority=950)
