"""How the book draws: one palette, one style, one way to show a picture.

Chapter: chapters/00_before_you_start
Source: none (own work)
Axes: none (see maps and curves)

A figure is made with `figure`, drawn on with plain matplotlib or with `heat`,
`outline`, `curve_with_band`, `dots_with_intervals` and `name_lines`, and shown
once with `show`, which wants its alternative text.
"""

from attnbook.figures.curves import (
    curve_with_band,
    dots_with_intervals,
    name_lines,
)
from attnbook.figures.maps import heat, outline
from attnbook.figures.style import (
    DPI,
    GREY,
    HEAT,
    PALETTE,
    STYLE,
    WIDEST,
    figure,
    png,
    show,
)

__all__ = [
    "DPI",
    "GREY",
    "HEAT",
    "PALETTE",
    "STYLE",
    "WIDEST",
    "curve_with_band",
    "dots_with_intervals",
    "figure",
    "heat",
    "name_lines",
    "outline",
    "png",
    "show",
]
