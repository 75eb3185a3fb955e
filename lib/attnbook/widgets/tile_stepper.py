"""The tile stepper: walk the tiles, and see maximum, sum and average run along.

Source: Dao (2023), section 3.1, algorithm 1, https://arxiv.org/abs/2307.08691
Axes: T queries, S keys, D width of query and key, E value width
"""

from pathlib import Path

import torch
import traitlets
from jaxtyping import Float
from torch import Tensor

from attnbook import masks
from attnbook.attention.masked_softmax import masked_softmax
from attnbook.attention.tiled import online_softmax
from attnbook.widgets.base import BookWidget
from attnbook.widgets.soft_lookup import draw_hidden_coordinates

HERE = Path(__file__)
MOST, D, E, BYTES = 10, 4, 2, 4


def draw_numbers(first: int, width: int, size: float) -> list[list[float]]:
    """Return ten rows of fixed normal numbers with two digits."""
    rows = (draw_hidden_coordinates(first + row, width) for row in range(MOST))
    return [[round(size * x, 2) for x in row] for row in rows]


class TileStepper(BookWidget):
    """Attention tile by tile, stopped after any number of tiles.

    Args:
        T: queries, 1 to 10; the last one is at the position of the last key.
        S: keys, 1 to 10.
        rows: queries of a tile.
        columns: keys of a tile.
        causal: whether a query sees only what does not come after it.
        step: how many tiles are done.

    Raises:
        traitlets.TraitError: if a number is none, or too large.
    """

    _esm = HERE.with_suffix(".js")
    _css = HERE.with_suffix(".css")
    T = traitlets.Int(5, min=1, max=MOST).tag(sync=True)
    S = traitlets.Int(7, min=1, max=MOST).tag(sync=True)
    rows = traitlets.Int(2, min=1, max=MOST).tag(sync=True)
    columns = traitlets.Int(3, min=1, max=MOST).tag(sync=True)
    causal = traitlets.Bool(False).tag(sync=True)
    step = traitlets.Int(2, min=0).tag(sync=True)
    query = traitlets.List(draw_numbers(0, D, 1.5), read_only=True).tag(sync=True)
    key = traitlets.List(draw_numbers(20, D, 1.5), read_only=True).tag(sync=True)
    value = traitlets.List(draw_numbers(40, E, 1.0), read_only=True).tag(sync=True)

    def scores(self) -> Float[Tensor, "T S"]:
        """Return all scores, which no kernel stores; -inf: masked out."""
        query, key = (
            torch.tensor(x[:n], dtype=torch.float64)
            for x, n in ((self.query, self.T), (self.key, self.S))
        )
        scores = query @ key.T * D**-0.5
        return scores.masked_fill(~self._mask(), -torch.inf)

    def _mask(self) -> Tensor:
        """Return which keys each query can attend to."""
        if self.causal:
            return masks.causal(self.T, self.S)
        return torch.ones(self.T, self.S, dtype=torch.bool)

    def list_tiles(self) -> list[tuple[int, int]]:
        """Return the corners of the tiles in the order of the walk.

        A tile that is masked out entirely is left out; queries without any
        tile have a corner at column -1, because their zeros are written.
        """
        mask, found = self._mask(), []
        for row in range(0, self.T, self.rows):
            corners = [
                (row, column)
                for column in range(0, self.S, self.columns)
                if mask[row : row + self.rows, column : column + self.columns]
                .any()
                .item()
            ]
            found += corners or [(row, -1)]
        return found

    def accumulate(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return maximum (T,), total (T,) and average (T, E) after the steps.

        A query that no tile has reached has maximum -inf and zeros.
        """
        scores = self.scores()
        met = torch.zeros_like(scores, dtype=torch.bool)
        for row, column in self.list_tiles()[: self.step]:
            if column >= 0:
                met[row : row + self.rows, column : column + self.columns] = 1
        met &= scores > -torch.inf
        seen = scores.masked_fill(~met, -torch.inf)
        maximum, total = online_softmax(seen.split(self.columns, dim=-1))
        value = torch.tensor(self.value[: self.S], dtype=torch.float64)
        return maximum, total, masked_softmax(scores, met) @ value

    def count_bytes(self) -> tuple[int, int]:
        """Return the bytes read and written so far; a number has 4."""
        walk = self.list_tiles()
        read = written = 0
        for nth, (row, column) in enumerate(walk[: self.step]):
            high = min(self.rows, self.T - row)
            if nth == 0 or walk[nth - 1][0] != row:
                read += high * D
            if column >= 0:
                read += min(self.columns, self.S - column) * (D + E)
            if nth + 1 == len(walk) or walk[nth + 1][0] != row:
                written += high * (E + 1)  # output and logsumexp
        return BYTES * read, BYTES * written

    def count_standard_bytes(self) -> tuple[int, int]:
        """Return the bytes that products, softmax and average would move."""
        T, S = self.T, self.S
        read = (T + S) * D + T * S + (T * S + S * E)
        return BYTES * read, BYTES * (2 * T * S + T * E)

    def fallback(self) -> str:
        """Return what runs along as a table, and the bytes in words."""
        walk = self.list_tiles()
        step = min(self.step, len(walk))
        rows = ""
        for t, (m, n, mean) in enumerate(
            zip(*(x.tolist() for x in self.accumulate()), strict=True)
        ):
            cells = (
                f"<td>{m:.2f}</td><td>{n:.2f}</td>"
                f"<td>{', '.join(f'{x:.2f}' for x in mean)}</td>"
                if n
                else "<td>nothing seen</td><td>0</td><td>zeros</td>"
            )
            rows += f"<tr><th>query {t}</th>{cells}</tr>"
        read, written = self.count_bytes()
        once, twice = self.count_standard_bytes()
        return (
            f"<figure><figcaption>After {step} of {len(walk)} tiles of "
            f"{self.rows} queries and {self.columns} keys, {self.T} queries "
            f"and {self.S} keys{', causal' if self.causal else ''}"
            "</figcaption><table><thead><tr><th></th><th>maximum</th>"
            "<th>total</th><th>average so far</th></tr></thead><tbody>"
            f"{rows}</tbody></table><p>Read {read} bytes and wrote {written}; "
            f"the version with a matrix of scores reads {once} and writes "
            f"{twice}.</p></figure>"
        )
