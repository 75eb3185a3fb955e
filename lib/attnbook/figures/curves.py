"""Lines and dots with uncertainty intervals and labels."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from attnbook.figures.style import GRAY, PALETTE, Numbers, to_array


def draw_curve_with_band(
    ax: Axes,
    x: Numbers,
    mean: Numbers,
    low: Numbers,
    high: Numbers,
    label: str,
    **options,
) -> tuple[Line2D, PolyCollection]:
    """Draw a line and, behind it, the interval from low to high.

    Raises:
        ValueError: if the four differ in length, or low exceeds high.
    """
    x, mean, low, high = (to_array(numbers) for numbers in (x, mean, low, high))
    sizes = [each.shape for each in (x, mean, low, high)]
    if len(set(sizes)) > 1 or x.ndim != 1:
        raise ValueError(
            "x, mean, low and high must be lists of one length, but have "
            f"shapes {', '.join(map(str, sizes))}"
        )
    if (wrong := low > high).any():
        raise ValueError(f"low is {low[wrong][0]:g} where high is {high[wrong][0]:g}")
    if ax.get_xscale() == "linear" and (x == x.round()).all():
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    (line,) = ax.plot(x, mean, label=label, **options)
    band = ax.fill_between(
        x, low, high, color=line.get_color(), alpha=0.18, linewidth=0
    )
    return line, band


def draw_dots_with_intervals(
    ax: Axes, names: Sequence[str], mean: Numbers, low: Numbers, high: Numbers
) -> None:
    """Draw one row for each name, first on top: a dot, and low to high.

    Raises:
        ValueError: if the four differ in length.
    """
    sizes = [len(each) for each in (names, mean, low, high)]
    if len(set(sizes)) > 1:
        raise ValueError(f"names, mean, low, high have lengths {sizes}")
    positions = np.arange(len(names))[::-1]
    ax.hlines(positions, to_array(low), to_array(high), color=GRAY, linewidth=3)
    ax.plot(to_array(mean), positions, "o", color=PALETTE["blue"], markersize=7)
    ax.set_yticks(positions, names)
    ax.margins(y=0.2 / max(len(names), 1) + 0.08)


def label_lines(ax: Axes, gap: int | float = 0.075) -> None:
    """Write each line's label at its right end instead of in a legend.

    Args:
        ax: axes whose lines are all drawn and whose limits are set.
        gap: smallest distance of two labels, as a share of the height.
    """
    lines = [x for x in ax.get_lines() if not str(x.get_label()).startswith("_")]
    lowest = 0.04 - gap  # the lowest label stays above the axis
    for height, line in sorted(
        ((_line_end_height(ax, x), x) for x in lines), key=_first_item
    ):
        lowest = max(height, lowest + gap)
        ax.annotate(
            line.get_label(),
            (to_array(line.get_xdata())[-1], lowest),
            xycoords=("data", "axes fraction"),
            xytext=(9, 0),
            textcoords="offset points",
            color=line.get_color(),
            va="center",
            annotation_clip=False,
        )


def _line_end_height(ax: Axes, line: Line2D) -> float:
    """Return how high a line ends, as a share of the axes' height."""
    point = [to_array(x)[-1] for x in line.get_data()]
    return ax.transAxes.inverted().transform(ax.transData.transform(point))[1]


def _first_item(pair: tuple) -> float:
    return pair[0]
