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
REACH, LAST, WIDEST = 3.0, 63, 32
LEAST_BASE, MOST_BASE = 2.0, 1e6


def read_vector(value, what: str) -> list[float]:
    """Return two numbers no longer than the plane shows."""
    fits = isinstance(value, Sequence) and not isinstance(value, str)
    if not fits or len(value) != 2:
        raise ValueError(f"the {what} must be 2 numbers, not {value!r:.60}")
    try:
        x, y = (float(number) for number in value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the {what} holds no number: {value!r:.60}") from error
    if not math.hypot(x, y) <= REACH:  # NaN does not pass either
        raise ValueError(
            f"the {what} has the length {math.hypot(x, y):.3g}; the plane "
            f"shows up to {REACH:g}"
        )
    return [x, y]


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
        ValueError: if a number is none, or outside its range.
    """

    _esm = HERE.with_suffix(".js")
    _css = HERE.with_suffix(".css")
    method = traitlets.Unicode().tag(sync=True)
    query = traitlets.List().tag(sync=True)
    key = traitlets.List().tag(sync=True)
    positions = traitlets.List().tag(sync=True)
    pair = traitlets.Int().tag(sync=True)
    width = traitlets.Int().tag(sync=True)
    base = traitlets.Float().tag(sync=True)

    def __init__(
        self,
        method: str = "rotary",
        query: Sequence[int | float] = (2.0, 1.0),
        key: Sequence[int | float] = (2.4, 0.2),
        positions: Sequence[int] = (20, 14),
        pair: int = 2,
        width: int = 16,
        base: int | float = 10000.0,
        **traits,
    ):
        super().__init__(
            method=method,
            query=list(query),
            key=list(key),
            positions=list(positions),
            width=width,
            pair=pair,
            base=float(base),
            **traits,
        )
        if self.pair >= self.width // 2:
            raise ValueError(
                f"pair is {self.pair}, but a width of {self.width} "
                f"has {self.width // 2}, counted from 0"
            )

    @traitlets.validate("method")
    def _known(self, proposal) -> str:
        if proposal["value"] not in METHODS:
            raise ValueError(
                f"method must be one of {', '.join(METHODS)}, not "
                f"{proposal['value']!r:.60}"
            )
        return proposal["value"]

    @traitlets.validate("query", "key")
    def _short_enough(self, proposal) -> list[float]:
        return read_vector(proposal["value"], proposal["trait"].name)

    @traitlets.validate("positions")
    def _within(self, proposal) -> list[int]:
        given = proposal["value"]
        if len(given) != 2 or not all(
            isinstance(p, int) and 0 <= p <= LAST for p in given
        ):
            raise ValueError(
                f"positions must be 2 whole numbers from 0 to {LAST}, not {given!r:.60}"
            )
        return given

    @traitlets.validate("width", "pair", "base")
    def _in_range(self, proposal) -> int | float:
        name, value = proposal["trait"].name, proposal["value"]
        low, high = {
            "width": (2, WIDEST),
            "pair": (0, WIDEST // 2 - 1),
            "base": (LEAST_BASE, MOST_BASE),
        }[name]
        if not low <= value <= high:
            raise ValueError(f"{name} is {value}, outside {low:g} to {high:g}")
        if name == "width" and value % 2:
            raise ValueError(f"width is {value}, and pairs need an even one")
        return value

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
