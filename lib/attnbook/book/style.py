"""Style: the book's own style sheet on top of the theme's.

Chapter: chapters/00_before_you_start
Source: none
Axes: none
"""

from pathlib import Path

SHEET = Path(__file__).with_name("book.css")


def copy_sheet(app, config) -> None:
    """Put the style sheet where Sphinx copies static files from."""
    out = Path(app.outdir).parent / "_style"
    out.mkdir(parents=True, exist_ok=True)
    (out / SHEET.name).write_text(SHEET.read_text("utf8"), "utf8")
    config.html_static_path.append(str(out))


def setup(app) -> None:
    """Add the sheet to every page."""
    app.connect("config-inited", copy_sheet, priority=900)
    app.add_css_file(SHEET.name, priority=900)
