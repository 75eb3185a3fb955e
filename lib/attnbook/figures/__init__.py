"""Figures: one palette, one style, one function that shows a figure.

A figure is made with `make_figure`, drawn on with plain matplotlib or with
`draw_heatmap`, `outline_cells`, `draw_curve_with_band`,
`draw_dots_with_intervals` and `label_lines`, and shown once with
`show_figure`, which requires its alternative text. A `Diagram` has boxes,
arrows, matrices and brackets, and shows itself. `show_table` shows numbers in
rows; `get_style` is one method's name, color and line in all chapters.
"""

from attnbook.figures.diagrams import Diagram
from attnbook.figures.plots import (
    DPI,
    GRAY,
    HEATMAP_COLORS,
    MAX_WIDTH,
    PALETTE,
    STYLE,
    draw_curve_with_band,
    draw_dots_with_intervals,
    draw_heatmap,
    get_color,
    get_style,
    label_lines,
    make_figure,
    outline_cells,
    render_png,
    show_figure,
    show_table,
    write_table,
)

__all__ = [
    "DPI",
    "GRAY",
    "HEATMAP_COLORS",
    "MAX_WIDTH",
    "PALETTE",
    "STYLE",
    "Diagram",
    "draw_curve_with_band",
    "draw_dots_with_intervals",
    "draw_heatmap",
    "get_color",
    "get_style",
    "label_lines",
    "make_figure",
    "outline_cells",
    "render_png",
    "show_figure",
    "show_table",
    "write_table",
]
