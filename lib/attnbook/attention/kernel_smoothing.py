"""Kernel smoothing: a weighted average by distance, which is attention.

Source: Nadaraya (1964), https://doi.org/10.1137/1109020; Watson (1964),
    Smooth Regression Analysis, Sankhyā A 26 (4). The kernel is Gaussian.
Axes: T queries, S keys, D width of a point, E value width
"""

from jaxtyping import Bool, Float
from torch import Tensor

from attnbook.attention.scaled_dot_product import attend


def nadaraya_watson(
    query: Float[Tensor, "*#B T D"],
    key: Float[Tensor, "*#B S D"],
    value: Float[Tensor, "*#B S E"],
    width: float,
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*B T E"]:
    """Return the average of the values, weighted by exp(-distance²/2width²).

    -|q - k|²/2 is q·k - |k|²/2, up to a term that is the same for all keys and
    leaves the softmax unchanged: attention with a bias, at scale 1/width².

    Args:
        query: points at which the value is estimated.
        key: points at which a value is known.
        value: the known values.
        width: bandwidth (standard deviation) of the Gaussian kernel.
        mask: True where a query can attend.

    Raises:
        ValueError: if the width is not positive.
    """
    if not width > 0:
        raise ValueError(f"the width is {width} but must be over 0")
    # Distances do not depend on the origin, but rounding errors do: center it.
    center = key.mean(dim=-2, keepdim=True)
    query, key, scale = query - center, key - center, width**-2
    bias = -key.square().sum(dim=-1).unsqueeze(-2) * scale / 2
    return attend(query, key, value, mask, bias=bias, scale=scale)
