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
from attnbook.widgets.examples import require_choice

HERE = Path(__file__)
KINDS = ("picture", "sound")


def cover_cells(
    low: float, high: float, cells: int, size: int
) -> Float[Tensor, "cells"]:
    """Return the share of each cell of a line that lies in an interval."""
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
        ValueError: if there is no such item or step.
    """

    _esm = HERE.with_suffix(".js")
    _css = HERE.with_suffix(".css")
    items = traitlets.List().tag(sync=True)
    item = traitlets.Int().tag(sync=True)
    step = traitlets.Int().tag(sync=True)

    def __init__(
        self, items: Sequence[Mapping], item: int = 0, step: int = 0, **traits
    ):
        made = [{**one, "milliseconds": one.get("milliseconds", 0)} for one in items]
        require_choice("item", item, len(made))
        for one in made:
            one["steps"] = [
                step | {"box": [float(x) for x in step["box"]]} for step in one["steps"]
            ]
        require_choice("step", step, len(made[item]["steps"]))
        super().__init__(items=made, item=item, step=step, **traits)

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
