"""Methods: one name and one look for each, in the figures of all chapters.

    ax.plot(lengths, errors, **get_style("one context vector"))

Within a family no two methods look alike, even without color.
"""

from typing import Any

from attnbook.figures.style import GRAY, PALETTE

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
    "kernels": {
        "reference": (INK, "-.", "^"),
        "tiled": (BLUE, "-", "o"),
        "SDPA": (ORANGE, "--", "s"),
        "FlexAttention": (GREEN, ":", "D"),
        "query chunks": (PINK, LONG_DASHES, "v"),
    },
}
METHODS = {name: look for family in FAMILIES.values() for name, look in family.items()}


def get_color(method: str) -> str:
    """Return a method's color.

    Raises:
        ValueError: if no method has that name.
    """
    return get_style(method)["color"]


def get_style(method: str) -> dict[str, Any]:
    """Return a method's name and look, as keywords of `Axes.plot`.

    Raises:
        ValueError: if no method has that name.
    """
    if method not in METHODS:
        raise ValueError(
            f"method {method!r} is none of those with a look of their own: "
            f"{', '.join(METHODS)}"
        )
    color, linestyle, marker = METHODS[method]
    return {
        "label": method,
        "color": color,
        "linestyle": linestyle,
        "marker": marker,
    }
