"""Receptive field: which inputs can reach a position through several layers.

Source: Beltagy et al. (2020), section 3.1 (the receptive field of windows over
    L layers), https://arxiv.org/abs/2004.05150
Axes: T positions
"""

import torch
from jaxtyping import Bool
from torch import Tensor

from attnbook.masks.rules import check_positive


def receptive_field(
    mask: Bool[Tensor, "*B T T"], layers: int
) -> Bool[Tensor, "*B T T"]:
    """Return which positions' inputs can reach each position after L layers.

    Row t is True at s if there is a path of at most L steps from t to s along
    the mask. The residual connections also keep each position's own input.

    >>> from attnbook.masks import draw_mask, window
    >>> print(draw_mask(receptive_field(window(6, 6, size=2), layers=3)))
    ●·····
    ●●····
    ●●●···
    ●●●●··
    ·●●●●·
    ··●●●●

    Args:
        mask: True where a query can attend, the same in every layer.
        layers: L.

    Raises:
        ValueError: if there is no layer, or the mask is not square.
    """
    check_positive(layers=layers)
    T, S = mask.shape[-2:]
    if T != S:
        raise ValueError(
            f"only self-attention is repeated layer by layer: the mask has {T} "
            f"queries but {S} keys"
        )
    # As numbers: the number of paths is positive where there is a path.
    step = (mask | torch.eye(T, dtype=torch.bool, device=mask.device)).float()
    reached = step
    for _ in range(layers - 1):
        reached = ((reached @ step) > 0).float()
    return reached > 0
