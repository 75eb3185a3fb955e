"""Attention on a picture and on a sound, as recorded, against a known truth.

A picture and the spectrogram of a sound are both drawn as an image, and the
attention weights as a grid over it. For each output step, a box is known in
which the model should find what it needs: the place of a digit, or the time of
a spoken word.

Axes: R and Q rows and columns of the grid of weights; the image has pixels
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import torch
import traitlets
from jaxtyping import Float
from torch import Tensor

from attnbook.widgets.base import BookWidget
from attnbook.widgets.examples import read_field, read_words, require_choice
from attnbook.widgets.head_explorer import read_integers
from attnbook.widgets.mask_builder import read_integer

HERE = Path(__file__)
KINDS = ("picture", "sound")
MOST_PIXELS, MOST_CELLS, MOST_STEPS = 400, 64, 80  # a side, a side, an item
DIGITS = "0123456789abcdef"  # a pixel: 0 is the background


def read_gray(item: Mapping, title: str) -> list[str]:
    """Return the rows of an image, one hexadecimal digit a pixel.

    Raises:
        ValueError: if rows differ in length, or there are other letters.
    """
    gray = read_words(read_field(item, "gray", title), f"gray of {title}")
    widths = sorted({len(row) for row in gray})
    if len(widths) != 1 or not 1 <= widths[0] <= MOST_PIXELS:
        raise ValueError(
            f"the rows of {title} have {widths} pixels; all must have the same "
            f"number, from 1 to {MOST_PIXELS}"
        )
    others = sorted({*"".join(gray)} - {*DIGITS})
    if others or len(gray) > MOST_PIXELS:
        raise ValueError(
            f"{title} has {len(gray)} rows and the pixels {others}; there are "
            f"at most {MOST_PIXELS} rows of digits from 0 to f"
        )
    return gray


def check_step(step: Mapping, cells: int, size: tuple[int, int], title: str) -> dict:
    """Return an output step: its label, its weights and the true box.

    Args:
        step: with `label`, `part`, `thousandths` and `box`.
        cells: of the grid.
        size: rows and columns of the image.
        title: of the picture or sound.

    Raises:
        ValueError: if a part is missing or does not fit.
    """
    thousandths = read_integers(
        read_field(step, "thousandths", title),
        cells,
        0,
        1000,
        f"the weights of {title}",
    )
    if not any(thousandths):
        raise ValueError(f"a step of {title} has no weight above 0")
    box = [round(float(x), 2) for x in read_field(step, "box", title)]
    fits = len(box) == 4 and all(0 <= box[i] < box[i + 2] <= size[i] for i in (0, 1))
    if not fits:
        raise ValueError(
            f"a box of {title} is {box!s:.60}; it must be top, left, bottom, "
            f"right inside {size[0]} rows and {size[1]} columns"
        )
    return {
        "label": str(read_field(step, "label", title)),
        "part": str(read_field(step, "part", title)),
        "thousandths": thousandths,
        "box": box,
    }


def check_item(item: Mapping) -> dict:
    """Return a picture or a sound with its output steps.

    Raises:
        ValueError: if a part is missing or does not fit.
    """
    title = str(read_field(item, "title", "an item"))
    kind = read_field(item, "kind", title)
    if kind not in KINDS:
        raise ValueError(f"{title} is a {kind!r}, not one of {[*KINDS]}")
    gray = read_gray(item, title)
    grid = read_integers(
        read_field(item, "grid", title), 2, 1, MOST_CELLS, f"grid of {title}"
    )
    given = list(read_field(item, "steps", title))
    if not 1 <= len(given) <= MOST_STEPS:
        raise ValueError(f"{title} has {len(given)} steps, not 1 to {MOST_STEPS}")
    size = len(gray), len(gray[0])
    cells = grid[0] * grid[1]
    return {
        "kind": kind,
        "title": title,
        "gray": gray,
        "grid": grid,
        "milliseconds": read_integer(
            item.get("milliseconds", 0), 0, 60_000, f"milliseconds of {title}"
        ),
        "steps": [check_step(step, cells, size, title) for step in given],
    }


def cover_cells(
    low: float, high: float, cells: int, size: int
) -> Float[Tensor, "cells"]:
    """Return the share of each cell of a line that lies in an interval.

    Args:
        low: where the interval begins, in pixels.
        high: where it ends.
        cells: into which the line is divided.
        size: pixels of the line.
    """
    edges = torch.arange(cells + 1, dtype=torch.float64) * (size / cells)
    inside = edges[1:].clamp(max=high) - edges[:-1].clamp(min=low)
    return inside.clamp(min=0) / (size / cells)


class PictureAndSound(BookWidget):
    """Recorded attention on pictures and sounds, step by step.

    Args:
        items: dicts with `kind` ("picture" or "sound"), `title`, `gray` (rows
            of hexadecimal digits), `grid` (R and Q), `milliseconds` (of a
            sound) and `steps`. A step has a `label` (what the model outputs),
            a `part` (what is in the true box), `thousandths` (R · Q weights,
            row by row) and a `box` (top, left, bottom, right, in pixels).
            `attnbook.data.recorded_maps.load_examples` returns them.
        item: which is shown first.
        step: which of its steps.

    Raises:
        ValueError: if an item does not fit, or there is no such item or step.
    """

    _esm = HERE.with_suffix(".js")
    _css = HERE.with_suffix(".css")
    items = traitlets.List().tag(sync=True)
    item = traitlets.Int().tag(sync=True)
    step = traitlets.Int().tag(sync=True)

    def __init__(
        self, items: Sequence[Mapping], item: int = 0, step: int = 0, **traits
    ):
        made = [check_item(one) for one in items]
        require_choice("item", item, len(made))
        super().__init__(items=made, item=item, step=step, **traits)

    @traitlets.validate("item", "step")
    def _exists(self, proposal) -> int:
        name, counts = proposal["trait"].name, {"item": len(self.items)}
        if self.item < len(self.items):
            counts["step"] = len(self.items[self.item]["steps"])
        require_choice(name, proposal["value"], counts.get(name, MOST_STEPS))
        return proposal["value"]

    def weights(self, item: int, step: int) -> Float[Tensor, "R Q"]:
        """Return the weights of a step as a grid; they sum to 1."""
        one = self.items[item]
        numbers = torch.tensor(one["steps"][step]["thousandths"], dtype=torch.float64)
        return (numbers / numbers.sum()).reshape(*one["grid"])

    def cover(self, item: int, step: int) -> Float[Tensor, "R Q"]:
        """Return the share of each cell that lies in the step's true box."""
        one = self.items[item]
        top, left, bottom, right = one["steps"][step]["box"]
        rows, columns = one["grid"]
        down = cover_cells(top, bottom, rows, len(one["gray"]))
        across = cover_cells(left, right, columns, len(one["gray"][0]))
        return down[:, None] * across

    def mass(self, item: int, step: int) -> float:
        """Return the weight inside the true box.

        The weight of a cell is spread evenly over its area.
        """
        return float((self.weights(item, step) * self.cover(item, step)).sum())

    def chance(self, item: int, step: int) -> float:
        """Return the mass of equal weights: the box's share of the area."""
        return float(self.cover(item, step).mean())

    def average(self, item: int) -> tuple[float, float]:
        """Return the mean mass and the mean chance level over the steps."""
        steps = range(len(self.items[item]["steps"]))
        mass = sum(self.mass(item, s) for s in steps) / len(steps)
        chance = sum(self.chance(item, s) for s in steps) / len(steps)
        return mass, chance

    def describe_finding(self) -> str:
        """Return the mean mass on the truth of pictures and of sounds."""
        parts = []
        for kind in KINDS:
            means = [
                self.average(i)
                for i, one in enumerate(self.items)
                if one["kind"] == kind
            ]
            if means:
                mass, chance = (
                    sum(column) / len(means) for column in zip(*means, strict=True)
                )
                s = "" if len(means) == 1 else "s"
                parts.append(
                    f"on {len(means)} {kind}{s}, attention gives {mass:.2f} of "
                    f"its weight to the true place on average (equal weights: "
                    f"{chance:.2f})"
                )
        return "; ".join(parts)

    def fallback(self) -> str:
        """Return the mean mass of each picture and sound as a table."""
        body = ""
        for i, one in enumerate(self.items):
            mass, chance = self.average(i)
            body += (
                f"<tr><th>{escape(one['title'])}</th>"
                f"<td>{len(one['steps'])}</td><td>{mass:.2f}</td>"
                f"<td>{chance:.2f}</td></tr>"
            )
        finding = self.describe_finding()
        return (
            f"<figure><figcaption>{finding[:1].upper()}{finding[1:]}. The true "
            "place is the box around a digit, or the time in which a word is "
            "spoken. These are single examples, not a test set.</figcaption>"
            "<table><thead><tr><th>picture or sound</th><th>steps</th>"
            "<th>weight on the true place</th><th>equal weights</th></tr>"
            f"</thead><tbody>{body}</tbody></table></figure>"
        )
