"""Softmax over the keys that a query can attend to; an empty row gives zeros.

Source: Luong et al. (2015), section 3.2 (a window that ends with the sentence),
    https://arxiv.org/abs/1508.04025. An empty window is not mentioned there;
    we return zero weights.
Axes: T queries, S keys
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def masked_softmax(
    scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "..."]
) -> Float[Tensor, "*B T S"]:
    """Return weights that sum to 1 over the keys where the mask is True.

    A row without any True gives zeros, and zero gradients in the backward pass.
    The mask has any shape that broadcasts to scores.

    Raises:
        ValueError: if the mask is not boolean, or does not broadcast to scores.
    """
    require_mask(mask, scores)
    visible = scores.masked_fill(~mask, -torch.inf)
    # The softmax of a row of -inf is NaN, and so is its gradient: such a row
    # is replaced by zeros before the softmax and set to 0 after it.
    empty = ~mask.any(dim=-1, keepdim=True)
    weights = visible.masked_fill(empty, 0.0).softmax(dim=-1)
    return weights.masked_fill(empty, 0.0)


def require_mask(mask: Tensor, scores: Tensor) -> None:
    """Raise ValueError unless the mask is boolean and broadcasts to scores."""
    if mask.dtype != torch.bool:
        raise ValueError(
            f"the mask must be boolean, True where a query can attend, "
            f"but is {mask.dtype}"
        )
    try:
        fits = torch.broadcast_shapes(scores.shape, mask.shape) == scores.shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"a mask of shape {tuple(mask.shape)} does not broadcast to "
            f"scores of shape {tuple(scores.shape)}"
        )


def softmax_over_keys(
    scores: Float[Tensor, "*B T S"],
    mask: Bool[Tensor, "..."] | None = None,
    bias: Float[Tensor, "..."] | None = None,
) -> Float[Tensor, "*B T S"]:
    """Return the weights of scores, with or without a mask and a bias.

    A bias of -inf masks its key out: a row without any other key gives zeros.

    Raises:
        ValueError: if the mask is not boolean, or does not broadcast to scores.
    """
    if bias is not None:
        scores, kept = scores + bias, bias != -torch.inf
        if mask is None:
            mask = kept
        elif mask.dtype == torch.bool:  # `masked_softmax` refuses any other
            mask = kept & mask
    return scores.softmax(-1) if mask is None else masked_softmax(scores, mask)
