"""Letters on the colored cells of diagrams: readable in light and dark mode."""

import re
from pathlib import Path

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
