"""Letters on the colored cells of diagrams: readable in light and dark mode."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from attnbook.figures import Diagram

ROOT = Path(__file__).parents[3]
BOOK = ROOT / "lib" / "workshop" / "book" / "theme" / "static" / "book.css"
FILTER = re.compile(
    r'data-theme="dark"\] \.cell_output img '
    r"\{ filter: invert\(([\d.]+)\) hue-rotate\(180deg\); \}"
)
SVG = "{http://www.w3.org/2000/svg}"
CONTRAST = 4.5  # WCAG 2.2, success criterion 1.4.3


def turn_dark(color):
    """Return what the page's filter makes of an RGB color in the dark mode."""
    amount = float(FILTER.search(BOOK.read_text("utf8"))[1])
    inverted = amount - (2 * amount - 1) * np.array(color)
    gray = np.array([[0.213, 0.715, 0.072]] * 3)
    return (inverted @ (2 * gray - np.eye(3)).T).clip(0, 1)


def luminance(color):
    color = np.asarray(color)
    linear = np.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def measure_contrast(one, other):
    """Return the lower contrast of two colors, of light and dark mode."""
    pairs = (one, other), (turn_dark(one), turn_dark(other))
    found = []
    for pair in pairs:
        low, high = sorted(map(luminance, pair))
        found.append((high + 0.05) / (low + 0.05))
    return min(found)


def test_contrast_is_that_of_the_standard():
    black, white = to_rgb("#000000"), to_rgb("#ffffff")
    assert luminance(white) == pytest.approx(1)
    assert turn_dark(white) == pytest.approx(np.array(to_rgb("#121212")), 3e-3)
    assert measure_contrast(black, white) < 21
    assert measure_contrast(to_rgb("#1f1f1f"), to_rgb("#458fc5")) < 2.8


def test_a_letter_is_readable_on_every_shade():
    diagram = Diagram(14, 3)
    diagram.draw_matrix(np.linspace(0, 1, 201)[None], (7, 1), cell=0.06, digits=2)
    cells, letters = diagram.ax.patches, diagram.ax.texts
    assert len(cells) == len(letters) == 201
    found = [
        measure_contrast(cell.get_facecolor()[:3], to_rgb(letter.get_color()))
        for cell, letter in zip(cells, letters, strict=True)
    ]
    assert min(found) >= CONTRAST
    shades = [cell.get_facecolor()[1] for cell in cells]
    assert (np.diff(shades) <= 0).all()


def read_fill(element):
    """Return the color with which an element is filled, or nothing."""
    found = re.search(r"fill: (#\w{6})", element.get("style", ""))
    return found and to_rgb(found[1])


def list_letters(svg):
    """Yield each text of a diagram with its color and that of its cell."""
    root, cells = ElementTree.fromstring(svg), []
    for patch in root.iter(f"{SVG}g"):
        path = patch.find(f"{SVG}path")
        if patch.get("id", "").startswith("patch_") and path is not None:
            numbers = np.array(re.findall(r"-?[\d.]+", path.get("d")), float)
            corners = numbers[: len(numbers) // 2 * 2].reshape(-1, 2)
            if read_fill(path):
                cells.append((corners.min(0), corners.max(0), read_fill(path)))
    for text in root.iter(f"{SVG}g"):
        inner = text.find(f"{SVG}g")
        if not text.get("id", "").startswith("text_") or inner is None:
            continue
        place = re.search(
            r"translate\(([\d.-]+) ([\d.-]+)\)", inner.get("transform", "")
        )
        x, y = map(float, place.groups())
        point = np.array([x + 1, y - 1])  # in the first letter
        below = [
            c for low, high, c in cells if (low < point).all() and (point < high).all()
        ]
        if below and read_fill(inner):
            yield text.get("id"), read_fill(inner), below[-1]


def test_the_reader_of_diagrams_finds_letters_and_cells():
    from attnbook.figures.style import render_svg

    diagram = Diagram(10, 5)
    diagram.draw_matrix([[0.2, 1.0]], (3, 3), digits=1)
    diagram.draw_text("wrong", (3.2, 3), color="ink")
    (_, dark, light), (_, white, deep), (_, ink, under) = list_letters(
        render_svg(diagram.fig)
    )
    assert dark == ink == to_rgb("#1f1f1f")
    assert white == to_rgb("#ffffff")
    assert under in (light, deep)
    assert measure_contrast(dark, light) > CONTRAST < measure_contrast(white, deep)
    assert measure_contrast(ink, deep) < CONTRAST


def list_diagrams():
    """Yield each chapter's name, the source of each cell, and its diagrams."""
    for path in sorted((ROOT / "chapters").glob("*.ipynb")):
        for cell in json.loads(path.read_text("utf8"))["cells"]:
            for output in cell.get("outputs", []):
                svg = "".join(output.get("data", {}).get("image/svg+xml", ""))
                if svg:
                    yield path.stem, "".join(cell["source"]), svg


def test_letters_on_cells_are_readable_in_every_chapter():
    for chapter, source, svg in list_diagrams():
        for name, letter, ground in list_letters(svg):
            if ground == (1, 1, 1):
                continue  # the colors of words on white are chosen above
            assert measure_contrast(letter, ground) >= CONTRAST, (
                f"{chapter}: {name} of the diagram {source[:60]!r}"
            )
