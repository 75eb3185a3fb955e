"""Screenshots: the pictures of the README and of the first page.

`make screenshots` opens the built pages in Chromium and writes
`chapters/images/`: a page, a widget, and the verdicts of a check on a wrong and
a right answer, which are computed while the picture is made.
"""

import contextlib
import io
import sys
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from workshop.book.browser import open_browser_or_exit
from workshop.book.measure import DOWN

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

WRONG = """def my_softmax(x):  # x: (rows, columns)
    shifted = (x - x.max(0).values).exp()
    return shifted / shifted.sum(0)


check_softmax(my_softmax)"""
RIGHT = """def my_softmax(x):
    shifted = (x - x.max(1, keepdim=True).values).exp()
    return shifted / shifted.sum(1, keepdim=True)


check_softmax(my_softmax)"""
COLORS = 64


def run_cell(code: str) -> str:
    """Run a cell whose last line is a check, and return the verdict's text.

    Args:
        code: lines that define an answer, and a last one that checks it
    """
    import torch

    from attnbook.exercises.before_you_start import check_softmax

    names = {"torch": torch, "check_softmax": check_softmax}
    *lines, last = code.splitlines()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec("\n".join(lines), names)
        verdict = eval(last, names)
    return (printed.getvalue() + repr(verdict)).strip()


def write_cells(codes: list[str], css: str) -> str:
    """Return a page with cells and what they print, in the book's style.

    Args:
        codes: the cells
        css: the address of the book's style sheet
    """
    cells = []
    for code in codes:
        marked = highlight(code, PythonLexer(), HtmlFormatter(nowrap=True))
        said = escape(run_cell(code))
        cells.append(
            '<div class="cell"><div class="cell_input"><div class="highlight">'
            f'<pre>{marked}</pre></div></div><div class="cell_output">'
            f'<div class="output"><pre>{said}</pre></div></div></div>'
        )
    return (
        '<!DOCTYPE html><html lang="en" data-theme="light"><head>'
        f'<meta charset="utf-8"><link rel="stylesheet" href="{css}"></head>'
        f'<body><main style="padding: 0"><article style="width: 640px">'
        f"{''.join(cells)}</article></main></body></html>"
    )


def show_widget(page: "Page", address: str, name: str) -> "Locator":
    """Open a page, skip its questions, and scroll to its widget of this name.

    Args:
        page: a page of Chromium
        address: the address of a built page
        name: the widget's name, such as `position_explorer`
    """
    page.goto(address)
    page.evaluate(DOWN)  # widgets begin when they come near
    page.wait_for_selector('[data-book-widget="prediction"][data-state="ready"]')
    # A question covers what follows it until it is answered or skipped.
    skips = page.get_by_role("button", name="Skip", exact=True)
    while skips.count():
        skips.first.click()
    named = f'[data-book-widget="{name}"]'
    page.locator(named).first.evaluate("x => x.scrollIntoView({block: 'center'})")
    widget = page.locator(f'{named}[data-state="ready"]').first
    widget.wait_for()
    return widget


def take(browser: "Browser", folder: Path, to: Path) -> list[Path]:
    """Write the pictures and return their paths.

    Args:
        browser: a Chromium that Playwright launched
        folder: the built HTML
        to: the folder of the pictures
    """
    root = folder.resolve().as_uri()
    page = browser.new_page(viewport={"width": 1280, "height": 780})
    show_widget(page, f"{root}/chapters/02_bahdanau.html", "alignment_player")
    page.screenshot(path=to / "page.png")
    page.close()
    page = browser.new_page(
        viewport={"width": 1100, "height": 760}, device_scale_factor=1.25
    )
    named = "position_explorer"
    widget = show_widget(page, f"{root}/chapters/08_positions.html", named)
    page.add_style_tag(content=".top { display: none !important }")
    widget.screenshot(path=to / "widget.png")
    cells = folder / "cells.html"
    cells.write_text(write_cells([WRONG, RIGHT], f"{root}/_static/book.css"))
    page.goto(cells.resolve().as_uri())
    page.locator("article").screenshot(path=to / "verdict.png")
    cells.unlink()
    page.close()
    paths = [to / f"{name}.png" for name in ("page", "widget", "verdict")]
    for path in paths:
        with Image.open(path) as image:
            image.convert("RGB").quantize(COLORS).save(path, optimize=True)
    return paths


def main() -> None:
    """Take the pictures and print their sizes."""
    folder, to = Path(sys.argv[1]), Path(sys.argv[2])
    with open_browser_or_exit() as browser:
        for path in take(browser, folder, to):
            print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
