"""Plots, heat maps and tables: one style, and one look for each method.

    ax.plot(lengths, errors, **get_style("one context vector"))

Within a family no two methods look alike, even without color. `show_table`
shows numbers and words in rows:

    rows = {"attention": [12.34, 20.1], "one context vector": [25.0, None]}
    show_table(
        rows, columns=["all words", "long words"], first="model", unit="%"
    )

shows 12.3 %, 20.1 %, 25.0 % and a dash.

Source: colors that every two readers who see red, green or blue weakly can
    tell apart, on white and under the page's dark mode, which inverts pictures
    and turns the hue back. Heat maps: the form is that of figure 3 in Bahdanau
    et al. (2015), https://arxiv.org/abs/1409.0473; there white is 1, here 0.
Axes: T rows (outputs), S columns (inputs)
"""

import io
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any
from xml.sax.saxutils import escape

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from PIL import Image


def is_in_notebook() -> bool:
    """Tell whether IPython runs this code."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return get_ipython() is not None


def display_or_print(
    bundle: Mapping[str, str | bytes], metadata: Mapping | None = None
) -> None:
    """Show an output's forms, by MIME type, in a notebook; else print its text."""
    if not is_in_notebook():
        print(bundle["text/plain"])
        return
    from IPython.display import display

    display(bundle, raw=True, metadata=metadata)


Numbers = Any  # whatever numpy reads: lists, arrays, tensors with a gradient

PALETTE = {
    "blue": "#0072b2",
    "orange": "#d55e00",
    "ink": "#1f1f1f",
    "green": "#009e73",
    "pink": "#b5488a",
}
GRAY = "#767676"  # for baselines
HEATMAP_COLORS = LinearSegmentedColormap.from_list(
    "heat", ["#ffffff", "#cfe1f2", "#6baed6", "#2171b5", "#08306b", "#041838"]
)
MAX_WIDTH = 7.2  # inches; the page's text column
DPI = 150

PATH = re.compile(r'\b(?:d|x|y|width|height|transform)="[^"]*"')
BREAK = re.compile(r"(?<=[\dz])\s*\n(\"?)")  # inside a path
DIGITS = re.compile(r"(?<!scale\()-?\b\d+\.\d{3,}")

STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so on any machine
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.linewidth": 0.8,
    "axes.prop_cycle": cycler(
        color=list(PALETTE.values()),
        linestyle=["-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1))],
        marker=["o", "s", "^", "D", "v"],
    ),
    "figure.facecolor": "#ffffff",  # dark mode turns exactly white into black
    "axes.facecolor": "#ffffff",
    "savefig.facecolor": "#ffffff",
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.constrained_layout.h_pad": 0.06,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
}


def make_figure(
    rows: int = 1,
    columns: int = 1,
    *,
    width: int | float = MAX_WIDTH,
    height: int | float = 3.6,
    title: str | None = None,
    **options,
) -> tuple[Figure, Any]:
    """Return a figure and its axes (one, or an array of them) in our style.

    Args:
        width: inches, at most 7.2, which is the page's.
        title: the finding, in a sentence; long ones are wrapped.
        options: anything else for `plt.subplots`.
    """
    if not 0 < width <= MAX_WIDTH:
        raise ValueError(
            f"width is {width} inches but must be over 0 and at most {MAX_WIDTH}"
        )
    matplotlib.rcParams.update(STYLE)
    fig, axes = plt.subplots(
        rows, columns, figsize=(width, height), layout="constrained", **options
    )
    if title is not None:
        lines = textwrap.fill(title, int(width * 12.5))
        fig.suptitle(lines, x=0.011, ha="left", fontsize=11)
    return fig, axes


def render_png(fig: Figure) -> bytes:
    """Return the figure as a light PNG: the same bytes for the same picture.

    A palette of 256 colors makes the file about three times smaller than full
    colour; the paper stays exactly white, which dark mode turns into black.
    """
    full = io.BytesIO()
    fig.savefig(full, format="png", dpi=DPI, metadata={"Software": None})
    few = Image.open(full).convert("RGB").quantize(256, kmeans=1, dither=0)
    colors, paper = few.getpalette() or [], few.tobytes()[0]
    colors[3 * paper : 3 * paper + 3] = 255, 255, 255
    few.putpalette(colors)
    light = io.BytesIO()
    few.save(light, format="png", optimize=True, dpi=(DPI, DPI))
    return light.getvalue()


def render_svg(fig: Figure, alt: str = "") -> str:
    """Return the figure as SVG: the same text for the same picture.

    Glyphs are paths, so that every reader sees the same letters. Coordinates
    have two digits: a processor may compute the sixteenth digit differently.
    A path is one line: a notebook stores every line of an SVG on its own.
    """
    drawn = io.StringIO()
    fixed = {"svg.hashsalt": "attnbook", "svg.fonttype": "path"}
    unsaid = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context(fixed):
        fig.savefig(drawn, format="svg", metadata=unsaid)
    short = PATH.sub(
        lambda path: DIGITS.sub(lambda x: f"{float(x[0]):.2f}", path[0]),
        BREAK.sub(lambda end: end[1] or " ", drawn.getvalue()),
    )
    label = escape(" ".join(alt.split()), {'"': "&quot;"})
    named = f'<svg role="img" aria-label="{label}" ' if label else "<svg "
    return short[short.index("<svg ") :].replace("<svg ", named, 1)


def show_figure(fig: Figure, alt: str) -> None:
    """Display a figure as one PNG, and close it.

    `alt` is what a reader who cannot see the figure should learn from it, and the
    output's plain text.
    """
    plt.close(fig)  # a closed figure still renders, and is not shown twice
    display_picture(fig, alt, {"image/png": render_png})


def display_picture(fig: Figure, alt: str, forms: dict[str, Callable]) -> None:
    """Display a figure in one output; `forms` render it, by MIME type."""
    alt = " ".join(alt.split())
    if not alt:
        raise ValueError(f"alt is {alt!r} but must describe the figure")
    plain = f"Figure: {alt}"
    if not is_in_notebook():
        print(plain)
        return
    about = {"alt": alt, "width": round(fig.get_size_inches()[0] * 100)}
    bundle = {kind: render(fig) for kind, render in forms.items()}
    named = dict.fromkeys(forms, about)
    display_or_print(bundle | {"text/plain": plain}, named)


def to_array(numbers: Numbers) -> np.ndarray:
    """Return numbers as a float array; a tensor may be on any device."""
    if hasattr(numbers, "detach"):
        numbers = numbers.detach().cpu().double()
    return np.asarray(numbers, dtype=float)


def draw_curve_with_band(
    ax: Axes,
    x: Numbers,
    mean: Numbers,
    low: Numbers,
    high: Numbers,
    label: str,
    **options,
) -> tuple[Line2D, PolyCollection]:
    """Draw a line and, behind it, the interval from low to high."""
    x, mean, low, high = (to_array(numbers) for numbers in (x, mean, low, high))
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
    """Draw one row for each name, first on top: a dot, and low to high."""
    positions = np.arange(len(names))[::-1]
    ax.hlines(positions, to_array(low), to_array(high), color=GRAY, linewidth=3)
    ax.plot(to_array(mean), positions, "o", color=PALETTE["blue"], markersize=7)
    ax.set_yticks(positions, names)
    ax.margins(y=0.2 / max(len(names), 1) + 0.08)


def label_lines(ax: Axes, gap: int | float = 0.075) -> None:
    """Write each line's label at its right end instead of in a legend.

    All lines are drawn and the limits set before. The gap is the smallest distance
    of two labels, as a share of the height.
    """
    lines = [x for x in ax.get_lines() if not str(x.get_label()).startswith("_")]
    lowest = 0.04 - gap  # the lowest label stays above the axis
    for line in sorted(lines, key=lambda x: _line_end_height(ax, x)):
        lowest = max(_line_end_height(ax, line), lowest + gap)
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


def draw_heatmap(
    ax: Axes,
    weights: Numbers,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    label: str = "attention weight",
    row_axis: str = "output",
    column_axis: str = "input",
    color_bar: bool = True,
) -> AxesImage:
    """Draw weights (T, S) as a heat map: row t has the weights of output t.

    Args:
        rows: T labels, from top to bottom.
        columns: S labels, from left to right, written above the map.
        label: name of the color bar.
        row_axis: what the rows are.
        column_axis: what the columns are.

    Raises:
        ValueError: if weights are not (T, S), not finite, or not from 0 to 1.
    """
    table = _check_weights(weights, rows, columns)
    image = ax.imshow(
        table, cmap=HEATMAP_COLORS, vmin=0, vmax=1, aspect="auto", zorder=1
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


def _check_weights(weights, rows, columns) -> np.ndarray:
    """Return weights as an array, or raise ValueError."""
    table = to_array(weights)
    if table.shape != (len(rows), len(columns)):
        raise ValueError(
            f"weights have shape {table.shape} but there are {len(rows)} row "
            f"labels and {len(columns)} column labels"
        )
    low, high = (table.min(), table.max()) if table.size else (np.nan, np.nan)
    if not (low >= 0 and high <= 1 + 1e-6):
        raise ValueError(
            f"weights run from {low:.3g} to {high:.3g} but the scale from 0 to 1"
        )
    return table


def outline_cells(ax: Axes, links: Iterable[tuple[int, int]], style: str = "-") -> None:
    """Draw a frame around cells (row, column) of a map, such as known links."""
    for row, column in links:
        ax.add_patch(
            Rectangle(
                (column - 0.5, row - 0.5),
                1,
                1,
                fill=False,
                edgecolor=PALETTE["orange"],
                linestyle=style,
                linewidth=1.6,
                zorder=3,
            )
        )


BLUE, ORANGE, INK, GREEN, PINK = PALETTE.values()
LONG_DASHES = (0, (6, 1, 1, 1, 1, 1))

# Family, then name: color, line style and marker.
FAMILIES: dict[str, dict[str, tuple]] = {
    "attention": {
        "attention": (BLUE, "-", "o"),
        "one context vector": (ORANGE, "--", "s"),
        "local-m": (GREEN, "-.", "^"),
    },
    "scores": {
        "additive (concat)": (BLUE, "-", "o"),
        "dot": (ORANGE, "--", "s"),
        "general": (INK, "-.", "^"),
        "location": (PINK, LONG_DASHES, "v"),
    },
    "orders": {
        "after the step": (BLUE, "-", "o"),
        "before the step": (ORANGE, "--", "s"),
        "input feeding": (GREEN, "-.", "^"),
    },
    "scaling": {
        "scaled": (BLUE, "-", "o"),
        "unscaled": (ORANGE, "--", "s"),
        "unscaled, smaller start": (GREEN, "-.", "^"),
    },
    "layers": {
        "self-attention": (BLUE, "-", "o"),
        "GRU": (ORANGE, "--", "s"),
        "LSTM": (GREEN, "-.", "^"),
        "RNN": (PINK, ":", "D"),
    },
    "positions": {
        "no positions": (GRAY, ":", "x"),
        "learned": (ORANGE, "--", "s"),
        "sinusoidal": (INK, "-.", "^"),
        "Shaw": (PINK, LONG_DASHES, "v"),
        "T5 bias": (GREEN, ":", "D"),
        "ALiBi": (ORANGE, "-", "P"),
        "RoPE": (BLUE, "-", "o"),
    },
    "mixers": {
        "softmax attention": (BLUE, "-", "o"),
        "softmax attention, reference": (GRAY, ":", "x"),
        "window": (ORANGE, "--", "s"),
        "linear attention": (GREEN, ":", "D"),
        "delta rule": (INK, "-.", "^"),
        "gated delta rule": (PINK, LONG_DASHES, "v"),
    },
    "selections": {
        "window and first token": (ORANGE, "-", "P"),
        "oracle top-k": (GREEN, "-.", "^"),
        "oracle blocks": (INK, ":", "D"),
    },
    "images": {
        "Vision Transformer": (BLUE, "-", "o"),
        "Vision Transformer, permuted patches": (GREEN, "-.", "^"),
        "convolutional network": (ORANGE, "--", "s"),
        "convolutional network, permuted patches": (PINK, ":", "D"),
    },
    "norms": {
        "pre-norm": (BLUE, "-", "o"),
        "post-norm": (ORANGE, "--", "s"),
    },
}
METHODS = {name: look for family in FAMILIES.values() for name, look in family.items()}


def get_style(method: str) -> dict[str, Any]:
    """Return a method's name and look, as keywords of `Axes.plot`."""
    color, style, marker = METHODS[method]
    return {"label": method, "color": color, "linestyle": style, "marker": marker}


DASH = "\N{EN DASH}"


def format_cell(value: Any, digits: int = 1, unit: str = "") -> str:
    """Return what a cell of a table shows."""
    if value is None:
        return DASH
    if isinstance(value, str):
        return value.replace("|", "\\|").replace("\n", " ")
    if isinstance(value, tuple):
        low, high = (f"{float(end):.{digits}f}" for end in value)
        shown = low if low == high else f"{low}{DASH}{high}"
    elif isinstance(value, bool):
        return "yes" if value else "no"
    elif isinstance(value, Real) and float(value).is_integer() and not digits:
        shown = f"{int(value):,}"
    else:
        shown = f"{float(value):,.{digits}f}"
    return f"{shown} {unit}".rstrip()


def write_table(
    rows: Mapping[str, Sequence],
    columns: Sequence[str],
    *,
    first: str = "",
    digits: int | Sequence[int] = 1,
    unit: str | Sequence[str] = "",
) -> str:
    """Return a table as Markdown: a name and its cells in every row.

    Args:
        rows: by name, one cell for each column: a number; a pair of numbers, the
            ends of a range; words; or None, for what was not measured.
        columns: their heads.
        first: head of the column of names.
        digits: after the point; one number, or one for each column.
        unit: written after numbers; one, or one for each column.
    """
    count = len(columns)
    places = [digits] * count if isinstance(digits, int) else list(digits)
    units = [unit] * count if isinstance(unit, str) else list(unit)
    # A column whose cells are all numbers is aligned at the right.
    right = [
        all(not isinstance(cells[i], str) for cells in rows.values())
        for i in range(count)
    ]
    lines = [
        [first, *columns],
        ["---", *("---:" if aside else "---" for aside in right)],
    ]
    for name, cells in rows.items():
        shown = zip(cells, places, units, strict=True)
        lines.append([format_cell(name), *(format_cell(*one) for one in shown)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def show_table(rows: Mapping[str, Sequence], columns: Sequence[str], **how):
    """Show a table below the cell; see `write_table`."""
    table = write_table(rows, columns, **how)
    display_or_print({"text/markdown": table, "text/plain": table})
