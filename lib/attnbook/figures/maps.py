"""Heat maps of attention weights.

Source: the form is that of figure 3 in Bahdanau et al. (2015),
    https://arxiv.org/abs/1409.0473; there white is 1, here white is 0.
Axes: T rows (outputs), S columns (inputs)
"""

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from attnbook.figures.style import HEATMAP_COLORS, PALETTE, Numbers, to_array


def draw_heatmap(
    ax: Axes,
    weights: Numbers,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    label: str = "attention weight",
    row_axis: str = "output",
    column_axis: str = "input",
    maximum: int | float = 1.0,
    color_bar: bool = True,
) -> AxesImage:
    """Draw weights (T, S) as a heat map: row t has the weights of output t.

    Args:
        ax: where to draw.
        weights: T rows of S numbers.
        rows: T labels, from top to bottom.
        columns: S labels, from left to right, written above the map.
        label: name of the color bar.
        row_axis: what the rows are.
        column_axis: what the columns are.
        maximum: value at the dark end of the scale, which starts at 0.
        color_bar: whether to draw the color bar.

    Raises:
        ValueError: if weights are ragged, not (T, S), not finite, or outside
            the scale.
    """
    table = _check_weights(weights, rows, columns, maximum)
    image = ax.imshow(
        table,
        cmap=HEATMAP_COLORS,
        vmin=0,
        vmax=maximum,
        aspect="auto",
        zorder=1,
    )
    longest = max(len(rows), len(columns))
    size = 9 if longest <= 16 else 7.5 if longest <= 26 else 5.6
    lean = sum(len(name) + 1 for name in columns) > 60
    ax.set_xticks(range(len(columns)), columns, fontsize=size, rotation=90 * lean)
    ax.set_yticks(range(len(rows)), rows, fontsize=size)
    ax.tick_params(length=0, top=True, labeltop=True, bottom=False)
    ax.tick_params(labelbottom=False, pad=2)
    ax.set_xlabel(f"{column_axis} →")
    ax.set_ylabel(f"← {row_axis}")
    ax.xaxis.set_label_position("top")
    for side in ("top", "right"):
        ax.spines[side].set_visible(True)
    if color_bar:
        ax.figure.colorbar(image, ax=ax, label=label, fraction=0.05, pad=0.02)
    return image


def _check_weights(weights, rows, columns, maximum) -> np.ndarray:
    """Return weights as an array, or raise ValueError."""
    if not hasattr(weights, "shape"):
        widths = sorted({len(row) for row in weights})
        if len(widths) > 1:
            raise ValueError(
                f"weights are ragged: one row has {widths[0]} numbers, "
                f"another {widths[-1]}"
            )
    table = to_array(weights)
    if table.shape != (len(rows), len(columns)):
        raise ValueError(
            f"weights have shape {table.shape} but there are {len(rows)} row "
            f"labels and {len(columns)} column labels"
        )
    low, high = (table.min(), table.max()) if table.size else (np.nan, np.nan)
    if not (low >= 0 and high <= maximum * (1 + 1e-6)):
        raise ValueError(
            f"weights run from {low:.3g} to {high:.3g} but the scale runs "
            f"from 0 to {maximum:g}"
        )
    return table


def outline_cells(
    ax: Axes,
    links: Iterable[tuple[int, int]],
    color: str = PALETTE["orange"],
    style: str = "-",
) -> None:
    """Draw a frame around cells (row, column) of a map, such as known links."""
    for row, column in links:
        ax.add_patch(
            Rectangle(
                (column - 0.5, row - 0.5),
                1,
                1,
                fill=False,
                edgecolor=color,
                linestyle=style,
                linewidth=1.6,
                zorder=3,
            )
        )
