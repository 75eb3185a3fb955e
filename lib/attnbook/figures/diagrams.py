"""Diagrams: boxes, arrows, matrices and brackets, with shapes from the code.

A diagram is a sheet whose unit is 0.4 inches and whose origin is at the bottom
left. Shapes are not typed: whoever draws a box passes the tensor or module
it stands for, and the sheet refuses two sizes for one axis.

    diagram = Diagram(width=10, height=4, title="A context vector")
    states = diagram.draw_row(
        ["$h_1$", "$h_2$", "$h_3$"], at=(1.5, 1), step=2, arrows=True,
        tensors=memory.states[0], axes="M",
    )
    context = diagram.draw_box("$c$", at=(8, 3), tensor=c, axes="M")
    diagram.draw_arrow(states[-1], context)
    diagram.draw_bracket(states, "encoder")
    diagram.show(alt="Three encoder states; the last becomes the context.")

Numbers are rounded before anything is drawn, and the SVG holds glyphs as paths
and no date: executing a cell again changes no byte.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from matplotlib.textpath import TextPath

from attnbook.figures.plots import (
    GRAY,
    HEATMAP_COLORS,
    PALETTE,
    STYLE,
    Numbers,
    display_picture,
    render_png,
    render_svg,
    to_array,
)

UNIT = 0.4  # inches
MAX_UNITS = 14  # on a phone, small letters are then 8 pixels high
SIZES = {"normal": 11, "small": 9}  # points
COLORS = {**PALETTE, "gray": GRAY, "white": "#ffffff"}

Point = tuple[int | float, int | float]


@dataclass(frozen=True)
class Part:
    """The center and size of something drawn, in units of the sheet.

    The letters of its shape reach so far `below` it.
    """

    x: int | float
    y: int | float
    width: int | float
    height: int | float
    below: int | float = 0.0

    @property
    def left(self) -> Point:
        """The middle of the left side."""
        return self.x - self.width / 2, self.y

    @property
    def right(self) -> Point:
        """The middle of the right side."""
        return self.x + self.width / 2, self.y

    @property
    def top(self) -> Point:
        """The middle of the upper side."""
        return self.x, self.y + self.height / 2

    @property
    def bottom(self) -> Point:
        """The middle of the lower side, under the letters of the shape."""
        return self.x, self.y - self.height / 2 - self.below

    def edge(self, towards: Point) -> Point:
        """Return where a line from the center leaves, towards a point."""
        across, up = towards[0] - self.x, towards[1] - self.y
        if across == up == 0:
            return self.x, self.y
        down = self.height / 2 + (self.below if up < 0 else 0)
        share = min(
            self.width / 2 / abs(across) if across else math.inf,
            down / abs(up) if up else math.inf,
        )
        return self.x + share * across, self.y + share * up


def skip_middle(shade: float) -> float:
    """Return a shade from 0 to 1 without the tones between 0.35 and 0.6.

    On these tones, neither dark nor white letters have a contrast of 4.5 on
    white pages and on dark ones, where the page inverts the picture.
    """
    return 0.7 * shade if shade <= 0.5 else 0.6 + 0.8 * (shade - 0.5)


def round_numbers(numbers: Iterable[int | float]) -> tuple[float, ...]:
    """Return numbers with three digits: the same on every machine."""
    return tuple(round(float(x), 3) for x in numbers)


def measure_text(text: str) -> float:
    """Return how wide a text is, in units of the sheet."""
    font = FontProperties(family="DejaVu Sans")
    box = TextPath((0, 0), text, size=SIZES["normal"], prop=font).get_extents()
    return math.ceil(10 * box.width / 72 / UNIT) / 10 if text.strip() else 0.0


def read_shape(tensor: Any) -> tuple[int, ...]:
    """Return the shape of a tensor or array, or of a module's weight."""
    held = tensor if hasattr(tensor, "shape") else tensor.weight
    return tuple(map(int, held.shape))


def write_shape(tensor: Any, axes: str, sizes: dict[str, int]) -> str:
    """Return a tensor's shape as a diagram shows it; "" without a tensor.

    The names of the axes may be empty. `sizes` holds those of the axes that the
    diagram has named so far, and grows.
    """
    if tensor is None:
        return ""
    shape, names = read_shape(tensor), axes.split()
    if not names:
        return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
    if len(names) != len(shape):
        raise ValueError(
            f"axes {axes!r} name {len(names)} axes but the tensor has shape {shape}"
        )
    pairs = list(zip(names, shape, strict=True))
    for name, size in pairs:
        if sizes.setdefault(name, size) != size:
            raise ValueError(
                f"axis {name} has size {size} here but {sizes[name]} earlier "
                "in this diagram"
            )
    return ", ".join(f"{name} = {size}" for name, size in pairs)


def find_ends(start: Part | Point, end: Part | Point) -> tuple[Point, Point]:
    """Return where an arrow between two parts or points begins and ends."""
    centers = [(x.x, x.y) if isinstance(x, Part) else x for x in (start, end)]
    (x, y), (to_x, to_y) = (
        round_numbers(one.edge(other) if isinstance(one, Part) else one)
        for one, other in zip((start, end), centers[::-1], strict=True)
    )
    return (x, y), (to_x, to_y)


def find_label_position(
    begin: Point, stop: Point, bend: int | float
) -> tuple[Point, str]:
    """Return where the text of an arrow is written, and how it is aligned.

    It stands beside the middle of the arrow, on the outer side of a bend.
    """
    across, up = stop[0] - begin[0], stop[1] - begin[1]
    length = math.hypot(across, up) or 1.0
    right = bend > 0 or (bend == 0 and across <= 0)
    gap = (abs(bend) * length / 2 + 0.28) * (1 if right else -1)
    aside, higher = gap * up / length, -gap * across / length
    align = "center"
    if abs(aside) > 0.12:
        align = "left" if aside > 0 else "right"
    middle = (begin[0] + stop[0]) / 2, (begin[1] + stop[1]) / 2
    return (middle[0] + aside, middle[1] + higher), align


class Diagram:
    """A sheet to draw on, at most 14 units wide; a title is added on top.

    Places are centers, in units. Colors are names in `PALETTE`, or "gray".
    Mathematics stands between dollar signs.
    """

    def __init__(self, width: int | float, height: int | float, title: str = ""):
        if not 0 < width <= MAX_UNITS:
            raise ValueError(
                f"width is {width} units but must be over 0 and at most "
                f"{MAX_UNITS}: letters must be readable on a phone"
            )
        matplotlib.rcParams.update(STYLE)
        head = 0.8 if title else 0.0
        self.fig = Figure(
            (width * UNIT, (height + head) * UNIT), dpi=STYLE["figure.dpi"]
        )
        self.ax = self.fig.add_axes((0, 0, 1, 1))
        self.ax.set(xlim=(0, width), ylim=(0, height + head))
        self.ax.axis("off")
        self.sizes: dict[str, int] = {}
        if title:
            top = height + head - 0.15
            self._write(title, (0.15, top), ha="left", va="top")

    def draw_box(
        self,
        text: str,
        at: Point,
        tensor: Any = None,
        axes: str = "",
        *,
        color: str = "ink",
        width: int | float | None = None,
        height: int | float = 0.95,
        frame: bool = True,
    ) -> Part:
        """Draw a labeled box and return it, to draw arrows and brackets at.

        Args:
            tensor: a tensor, array or module (then its weight) whose shape
                is written below the box.
            axes: names of the tensor's axes, such as "B S M".
            width: as the text needs unless given.
        """
        shape = write_shape(tensor, axes, self.sizes)
        wide = max(measure_text(text) + 0.5, 1.1) if width is None else width
        box = Part(*round_numbers(at), round(wide, 2), height, 0.55 if shape else 0)
        corner = box.left[0], box.y - height / 2
        self.ax.add_patch(
            FancyBboxPatch(
                corner,
                box.width,
                height,
                boxstyle="round,pad=0,rounding_size=0.14",
                facecolor="#ffffff",
                edgecolor=COLORS[color],
                linewidth=1.4 if frame else 0,
                zorder=3,
            )
        )
        self._write(text, at, color=color)
        if shape:
            place = box.x, box.y - height / 2 - 0.1
            self._write(shape, place, "gray", "small", va="top")
        return box

    def draw_row(
        self,
        texts: Sequence[str],
        at: Point,
        step: int | float,
        tensors: Any = None,
        axes: str = "",
        *,
        arrows: bool = False,
        **options,
    ) -> list[Part]:
        """Draw boxes side by side, such as the states of an encoder.

        Args:
            at: center of the first box.
            step: from one center to the next; negative goes left.
            tensors: one for each box, or none.
            axes: names of the axes of each tensor.
            arrows: whether an arrow leads from each box to the next.
            options: anything else for `draw_box`.
        """
        tensors = [None] * len(texts) if tensors is None else tensors
        boxes = [
            self.draw_box(
                text,
                (at[0] + step * i, at[1]),
                tensor,
                axes,
                **options,
            )
            for i, (text, tensor) in enumerate(zip(texts, tensors, strict=True))
        ]
        for one, other in pairwise(boxes):
            if arrows:
                self.draw_arrow(one, other)
        return boxes

    def draw_arrow(
        self,
        start: Part | Point,
        end: Part | Point,
        text: str = "",
        *,
        weight: int | float | None = None,
        color: str = "ink",
        bend: int | float = 0.0,
    ) -> None:
        """Draw an arrow between the sides of two parts that face each other.

        Args:
            text: written beside its middle.
            weight: an attention weight from 0 to 1, drawn as the width.
            bend: how far it bends to the right, as a share of its length.
        """
        begin, stop = find_ends(start, end)
        wide = 1.3 if weight is None else 0.4 + 5 * round(float(weight), 2)
        self.ax.add_patch(
            FancyArrowPatch(
                begin,
                stop,
                arrowstyle="-|>",
                mutation_scale=10 if weight is None else 8 + wide,
                shrinkA=1,
                shrinkB=1,
                color=COLORS[color],
                linewidth=round(wide, 2),
                connectionstyle=f"arc3,rad={round(bend, 2)}",
                zorder=2,
            )
        )
        if text:
            place, align = find_label_position(begin, stop, bend)
            self._write(text, place, color, "small", ha=align)

    def draw_matrix(
        self,
        numbers: Numbers,
        at: Point,
        rows: Sequence[str] = (),
        columns: Sequence[str] = (),
        *,
        axes: str = "",
        cell: int | float = 0.9,
        maximum: int | float = 1.0,
        digits: int | None = None,
    ) -> Part:
        """Draw a matrix of colored cells, darker for larger numbers.

        Args:
            numbers: (rows, columns), from 0 to maximum.
            rows: labels on the left.
            columns: labels above.
            axes: names of the two axes; their sizes are written below.
            cell: side of a cell.
            maximum: the number that is darkest.
            digits: after the point, if numbers are written into the cells.
        """
        table = to_array(numbers).round(3)
        low, high = table.min(), table.max()
        if not 0 <= low <= high <= maximum * 1.0001:
            raise ValueError(
                f"the numbers run from {low:.3g} to {high:.3g} but the colors from "
                f"0 to {maximum:g}"
            )
        shape = write_shape(table, axes, self.sizes) if axes else ""
        height, width = (n * cell for n in table.shape)
        left, top = at[0] - width / 2, at[1] + height / 2
        for (i, j), number in np.ndenumerate(table):
            x, y = round(left + cell * j, 3), round(top - cell * (i + 1), 3)
            shade = round(float(number / maximum), 2)
            self.ax.add_patch(
                Rectangle(
                    (x, y),
                    cell,
                    cell,
                    facecolor=HEATMAP_COLORS(skip_middle(shade)),
                    edgecolor=GRAY,
                    linewidth=0.7,
                    zorder=3,
                )
            )
            if digits is not None:
                written = f"{number:.{digits}f}"
                middle = x + cell / 2, y + cell / 2
                ink = "white" if shade > 0.5 else "ink"
                self._write(written, middle, ink, "small")
        for i, text in enumerate(rows):
            place = left - 0.15, top - cell * (i + 0.5)
            self._write(text, place, size="small", ha="right")
        for j, text in enumerate(columns):
            place = left + cell * (j + 0.5), top + 0.15
            self._write(text, place, size="small", va="bottom")
        if shape:
            place = at[0], at[1] - height / 2 - 0.1
            self._write(shape, place, "gray", "small", va="top")
        return Part(*round_numbers(at), width, height, 0.55 if shape else 0)

    def draw_bracket(
        self,
        parts: Sequence[Part],
        text: str,
        *,
        side: str = "below",
        color: str = "gray",
    ) -> None:
        """Draw a bracket "below" or "above" parts, with a text on its far side."""
        left = min(part.left[0] for part in parts)
        right = max(part.right[0] for part in parts)
        if side == "below":
            foot = min(part.bottom[1] for part in parts) - 0.15
            tip, letters = foot - 0.2, ("top", foot - 0.3)
        else:
            foot = max(part.top[1] for part in parts) + 0.15
            tip, letters = foot + 0.2, ("bottom", foot + 0.3)
        xs, ys = [left, left, right, right], [foot, tip, tip, foot]
        ink = COLORS[color]
        line = round_numbers(xs), round_numbers(ys)
        self.ax.plot(*line, color=ink, linestyle="-", marker="", linewidth=1.2)
        place = (left + right) / 2, letters[1]
        self._write(text, place, color, "small", va=letters[0])

    def draw_text(
        self,
        text: str,
        at: Point,
        *,
        color: str = "ink",
        size: str = "small",
        align: str = "center",
    ) -> None:
        """Write a text, "small" or "normal"; `align` says which side is at `at`."""
        self._write(text, at, color, size, ha=align)

    def show(self, alt: str) -> None:
        """Show the diagram as SVG and PNG in one output, as `show_figure` does."""
        forms = {
            "image/svg+xml": lambda fig: render_svg(fig, alt),
            "image/png": render_png,
        }
        display_picture(self.fig, alt, forms)

    def _write(
        self, text, at, color="ink", size="normal", ha="center", va="center"
    ) -> None:
        ink = COLORS[color]
        x, y = round_numbers(at)
        points = SIZES[size]
        self.ax.text(x, y, text, color=ink, fontsize=points, ha=ha, va=va, zorder=4)
