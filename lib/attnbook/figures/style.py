"""The style of every figure, and how a figure is shown.

Source: The colors are chosen so that every two of them can be
    distinguished by readers who see red, green or blue weakly, on
    white and under the page's dark mode, which inverts pictures and turns the
    hue back; tests/attnbook/figures/test_figures.py simulates all of that.
"""

import io
import re
import textwrap
from collections.abc import Callable
from typing import Any
from xml.sax.saxutils import escape

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib import pyplot as plt
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from PIL import Image

from attnbook.figures.display import display_or_print, is_in_notebook

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
        rows: rows of axes.
        columns: columns of axes.
        width: inches, at most 7.2.
        height: inches.
        title: the finding, in a sentence; long ones are wrapped.
        options: anything else for `plt.subplots`.

    Raises:
        ValueError: if the figure is wider than the page.
    """
    if not 0 < width <= MAX_WIDTH:
        raise ValueError(
            f"width is {width} inches but must be over 0 and at most {MAX_WIDTH}"
        )
    matplotlib.rcParams.update(STYLE)
    size = (width, height)
    fig, axes = plt.subplots(
        rows, columns, figsize=size, layout="constrained", **options
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

    Args:
        fig: the figure.
        alt: its alternative text, which becomes its label.
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
    """Display a figure as one PNG with its alternative text, and close it.

    Args:
        fig: the figure.
        alt: what a reader who cannot see the figure should learn from it.
            It is also the output's plain text.

    Raises:
        ValueError: if alt is empty.
    """
    plt.close(fig)  # a closed figure still renders, and is not shown twice
    display_picture(fig, alt, {"image/png": render_png})


def display_picture(fig: Figure, alt: str, forms: dict[str, Callable]) -> None:
    """Display a figure in one output, which may have several forms.

    Args:
        fig: the figure.
        alt: what a reader who cannot see it should learn from it.
        forms: by MIME type, what renders the figure.

    Raises:
        ValueError: if alt is empty.
    """
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
