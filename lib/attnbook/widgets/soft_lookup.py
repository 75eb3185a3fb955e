"""The soft lookup: drag a query and keys, and see how their values mix.

Source: Vaswani et al. (2017), section 3.2.1, equation 1,
    https://arxiv.org/abs/1706.03762, with a temperature
Axes: S keys, D width; the plane shows the first two of D dimensions
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import traitlets

from attnbook.widgets.base import BookWidget

HERE = Path(__file__)
COLORS = (
    {"label": "red", "place": [1.5, 0.0], "value": [1.0, 0.0, 0.0]},
    {"label": "green", "place": [-0.75, 1.3], "value": [0.0, 1.0, 0.0]},
    {"label": "blue", "place": [-0.75, -1.3], "value": [0.0, 0.0, 1.0]},
)
MOST = 8


def draw_hidden_coordinates(row: int, count: int) -> list[float]:
    """Return what a vector holds in the dimensions that no plane shows.

    The same standard normal numbers for the same row, here and in the page:
    mulberry32 for chance, Box and Muller for the bell.
    """
    state, drawn = (row + 1) * 0x9E3779B1 & 0xFFFFFFFF, []

    def chance() -> float:
        nonlocal state
        state = (state + 0x6D2B79F5) & 0xFFFFFFFF
        t = (state ^ state >> 15) * (state | 1) & 0xFFFFFFFF
        t ^= (t + ((t ^ t >> 7) * (t | 61) & 0xFFFFFFFF)) & 0xFFFFFFFF
        return (t ^ t >> 14) / 4294967296

    for _ in range(count):
        size = math.sqrt(-2 * math.log(1 - chance()))
        drawn.append(size * math.cos(2 * math.pi * chance()))
    return drawn


class SoftLookup(BookWidget):
    """A dictionary that mixes its values by how well its keys fit.

    Args:
        entries: 1 to 8 dicts with a label, a place (x, y) and a value (red,
            green, blue between 0 and 1); three colours unless given.
        query: the first two coordinates of the query.
        temperature: divides the scores.
        width: D; the plane shows 2 coordinates; the others of the query and
            of each key are fixed draws (see `draw_hidden_coordinates`).
        divided: whether scores are divided by √D as well.

    Raises:
        traitlets.TraitError: if a number is none, or outside its range.
    """

    _esm = HERE.with_suffix(".js")
    _css = HERE.with_suffix(".css")
    entries = traitlets.List(minlen=1, maxlen=MOST).tag(sync=True)
    query = traitlets.List(minlen=2, maxlen=2).tag(sync=True)
    temperature = traitlets.Float(1.0, min=0.01, max=100.0).tag(sync=True)
    width = traitlets.Int(2, min=2, max=1024).tag(sync=True)
    divided = traitlets.Bool(True).tag(sync=True)

    def __init__(
        self,
        entries: Sequence[Mapping] = COLORS,
        query: Sequence[float] = (1.4, 1.4),
        **traits,
    ):
        super().__init__(entries=list(entries), query=list(query), **traits)

    def scores(self) -> list[float]:
        """Return what softmax gets: the products, divided."""
        query = [*self.query, *draw_hidden_coordinates(0, self.width - 2)]
        scale = (self.width**-0.5 if self.divided else 1.0) / self.temperature
        scores = []
        for row, key in enumerate(self.entries, start=1):
            place = [
                *key["place"],
                *draw_hidden_coordinates(row, self.width - 2),
            ]
            products = (a * b for a, b in zip(query, place, strict=True))
            scores.append(scale * sum(products))
        return scores

    def weights(self) -> list[float]:
        """Return the weight of each key."""
        scores = self.scores()
        shares = [math.exp(s - max(scores)) for s in scores]
        return [x / sum(shares) for x in shares]

    def fallback(self) -> str:
        """Return scores, weights, output and entropy as a table."""
        weights = self.weights()
        rows = "".join(
            f"<tr><td>{escape(key['label'])}</td><td>{format_rgb(key['value'])}"
            f"</td><td>{score:.2f}</td><td>{weight:.2f}</td></tr>"
            for key, score, weight in zip(
                self.entries, self.scores(), weights, strict=True
            )
        )
        values = zip(*(key["value"] for key in self.entries), strict=True)
        mixed = [
            sum(w * x for w, x in zip(weights, column, strict=True))
            for column in values
        ]
        entropy = sum(-w * math.log(w) for w in weights if w)
        x, y = self.query
        root = " and by √D" if self.divided else ""
        return (
            f"<figure><figcaption>A query at ({x:.2f}, {y:.2f}); scores are "
            f"products divided by the temperature {self.temperature:g}{root}, "
            f"with D = {self.width}</figcaption><table><thead><tr><th>key</th>"
            "<th>value (red, green, blue)</th><th>score</th><th>weight</th>"
            f"</tr></thead><tbody>{rows}</tbody></table><p>The output: "
            f"{format_rgb(mixed)}. Entropy: {entropy:.2f} nats.</p></figure>"
        )


def format_rgb(colour: Sequence[float]) -> str:
    """Return a colour's three numbers as text."""
    return ", ".join(f"{x:.2f}" for x in colour)
