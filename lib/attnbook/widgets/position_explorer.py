"""The position explorer: move a query and a key, and see what their score does.

Source: waves: Vaswani et al. (2017), section 3.5,
    https://arxiv.org/abs/1706.03762; rotation: Su et al. (2021), section 3.4,
    equation 34, https://arxiv.org/abs/2104.09864. Every pair of columns holds
    the same two numbers, so that one plane shows the whole vector.
Axes: D width, in pairs of columns; positions 0 to 63
"""

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

import traitlets

from attnbook.widgets.base import BookWidget

HERE = Path(__file__)
METHODS = ("rotary", "sinusoidal")
LAST = 63


class PositionExplorer(BookWidget):
    """A query and a key at two positions, encoded by rotation or by sinusoids.

    Args:
        method: "rotary" or "sinusoidal".
        query: what each pair of the query's columns holds, at most 3 long.
        key: likewise.
        positions: of query and key, 0 to 63.
        pair: the pair of columns that the plane shows, from 0.
        width: D, even, 2 to 32.
        base: of the frequencies.

    Raises:
        traitlets.TraitError: if a number is none, or outside its range.
    """

    _esm = HERE.with_suffix(".js")
    _css = HERE.with_suffix(".css")
    method = traitlets.Enum(METHODS, "rotary").tag(sync=True)
    query = traitlets.List([2.0, 1.0], minlen=2, maxlen=2).tag(sync=True)
    key = traitlets.List([2.4, 0.2], minlen=2, maxlen=2).tag(sync=True)
    positions = traitlets.List([20, 14], minlen=2, maxlen=2).tag(sync=True)
    pair = traitlets.Int(2, min=0).tag(sync=True)
    width = traitlets.Int(16, min=2, max=32).tag(sync=True)
    base = traitlets.Float(10000.0, min=2.0, max=1e6).tag(sync=True)

    def frequencies(self) -> list[float]:
        """Return the angle per step of each pair."""
        return [self.base ** (-2 * i / self.width) for i in range(self.width // 2)]

    def encode(self, content: Sequence[float], position: int) -> list[float]:
        """Return a whole vector, encoded at a position."""
        (x, y), whole = content, []
        for step in self.frequencies():
            sine, cosine = math.sin(position * step), math.cos(position * step)
            if self.method == "rotary":
                whole += [x * cosine - y * sine, x * sine + y * cosine]
            else:
                whole += [x + sine, y + cosine]
        return whole

    def score(self, query_at: int, key_at: int) -> float:
        """Return the score of query and key at two positions, over √D."""
        query = self.encode(self.query, query_at)
        key = self.encode(self.key, key_at)
        products = (a * b for a, b in zip(query, key, strict=True))
        return sum(products) / self.width**0.5

    def fallback(self) -> str:
        """Return wavelengths as a table, and the score here and elsewhere."""
        m, n = self.positions
        rows = "".join(
            f"<tr><td>{i + 1}</td><td>{2 * math.pi / step:.3g}</td>"
            f"<td>{(n - m) * step:.2f}</td></tr>"
            for i, step in enumerate(self.frequencies())
        )
        starts = range(max(0, m - n), LAST + 1 - max(0, n - m))
        same = [self.score(p, p + n - m) for p in starts]
        return (
            f"<figure><figcaption>{escape(self.method)} positions, width "
            f"{self.width}, base {self.base:g}: a query at {m} and a key at "
            f"{n}</figcaption><table><thead><tr><th>pair</th><th>wavelength "
            "(steps)</th><th>angle from query to key (radians)</th></tr>"
            f"</thead><tbody>{rows}</tbody></table><p>Score: "
            f"{self.score(m, n):.2f}. At all positions with the same distance: "
            f"{min(same):.2f} to {max(same):.2f}.</p></figure>"
        )
