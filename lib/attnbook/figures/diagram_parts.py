"""Parts of a diagram: where they lie, what their letters take, what is refused.

`attnbook.figures.diagrams` draws them.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from attnbook.figures.style import GRAY, PALETTE

UNIT = 0.4  # inches
SIZES = {"normal": 11, "small": 9}  # points
SIGN = r"[,\u00d7]"  # a comma or the sign for "times"
TYPED_SHAPE = re.compile(rf"[(\[]\s*\d+\s*{SIGN}\s*(\d+\s*{SIGN}?\s*)*[)\]]")

Point = tuple[int | float, int | float]


@dataclass(frozen=True)
class Part:
    """The place and size of something drawn, in units of the sheet.

    Attributes:
        x: of the center.
        y: of the center.
        width: from left to right.
        height: from bottom to top.
        below: how far the letters of its shape reach below it.
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


def find_color(name: str) -> str:
    """Return a color of the book's palette by its name.

    Raises:
        ValueError: if the palette has no such color.
    """
    colors = {**PALETTE, "gray": GRAY, "white": "#ffffff"}
    if name not in colors:
        raise ValueError(f"color is {name!r} but must be one of {list(colors)}")
    return colors[name]


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
    """Return the shape of a tensor or array, or of a module's weight.

    Raises:
        ValueError: if it is none of them.
    """
    held = getattr(tensor, "shape", None)
    if held is None:
        held = getattr(getattr(tensor, "weight", None), "shape", None)
    if held is None:
        raise ValueError(
            f"a shape is read from a tensor or a module with a weight, not "
            f"from {type(tensor).__name__} {tensor!r:.40}"
        )
    return tuple(map(int, held))


def write_shape(tensor: Any, axes: str, sizes: dict[str, int]) -> str:
    """Return a tensor's shape as a diagram shows it; "" without a tensor.

    Args:
        tensor: a tensor, array or module, or None.
        axes: names of its axes, such as "B S M"; may be empty.
        sizes: of the axes that the diagram has named so far; grows.

    Raises:
        ValueError: if the axes do not fit the shape or what was drawn before.
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


def require_no_shape(text: str) -> None:
    """Refuse a text with a typed shape: shapes come from the code.

    Raises:
        ValueError: naming the shape.
    """
    if found := TYPED_SHAPE.search(text):
        raise ValueError(
            f"the text {text!r} holds the typed shape {found[0]}: pass the "
            "tensor, so that the diagram shows what the code computes"
        )


def require_matrix(table: np.ndarray, rows, columns, maximum: int | float) -> None:
    """Refuse numbers that cannot be drawn as a matrix with these labels.

    Raises:
        ValueError: saying both values.
    """
    if table.ndim != 2 or not table.size:
        raise ValueError(
            f"the numbers have shape {table.shape} but a matrix has two axes, "
            "neither of them empty"
        )
    for labels, size, name in (
        (rows, table.shape[0], "rows"),
        (columns, table.shape[1], "columns"),
    ):
        if len(labels) not in (0, size):
            raise ValueError(f"there are {len(labels)} labels for {size} {name}")
    low, high = table.min(), table.max()
    if not (low >= 0 and high <= maximum * 1.0001):
        raise ValueError(
            f"the numbers run from {low:.3g} to {high:.3g} but the colors from "
            f"0 to {maximum:g}"
        )


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
