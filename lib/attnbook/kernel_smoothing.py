"""Kernel smoothing: a weighted average by distance, which is attention.

Chapter: chapters/04_scaled_dot_product
Source: Nadaraya (1964), https://doi.org/10.1137/1109020; Watson (1964),
    Smooth Regression Analysis, Sankhyā A 26 (4). The kernel is Gaussian.
Axes: T queries, S keys, D width of a place, E value width
"""

from jaxtyping import Bool, Float
from torch import Tensor

from attnbook.scaled_dot_product import attend


def smooth(
    query: Float[Tensor, "*#B T D"],
    key: Float[Tensor, "*#B S D"],
    value: Float[Tensor, "*#B S E"],
    width: float,
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*B T E"]:
    """Return the average of the values, weighted by exp(-distance²/2width²).

    -|q - k|²/2 is q·k - |k|²/2, up to a term that all keys share and that
    softmax does not feel: attention with a bias, at scale 1/width².

    Args:
        query: places to be estimated.
        key: places where a value is known.
        value: what was measured there.
        width: of the bell, in the unit of the places.
        mask: True where a query may look.

    Raises:
        ValueError: if the width is not positive.
    """
    if not width > 0:
        raise ValueError(f"the width is {width} but must be over 0")
    # Distances do not depend on the origin, rounding does: put it among them.
    centre = key.mean(dim=-2, keepdim=True)
    query, key, scale = query - centre, key - centre, width**-2
    bias = -key.square().sum(dim=-1).unsqueeze(-2) * scale / 2
    return attend(query, key, value, mask, bias=bias, scale=scale)
