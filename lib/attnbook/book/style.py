"""Style: the book's own style sheet and script on top of the theme's.

Chapter: chapters/00_before_you_start
Source: none
Axes: none
"""

from pathlib import Path

HERE = Path(__file__).parent
FILES = ("book.css", "book.js")


def copy_files(app, config) -> None:
    """Put the files where Sphinx copies static files from."""
    out = Path(app.outdir).parent / "_style"
    out.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (out / name).write_text((HERE / name).read_text("utf8"), "utf8")
    config.html_static_path.append(str(out))


def setup(app) -> None:
    """Add the files to every page."""
    app.connect("config-inited", copy_files, priority=900)
    app.add_css_file("book.css", priority=900)
    app.add_js_file("book.js", loading_method="defer")
