"""Scaled dot-product attention in its shortest form, and its gradient.

Source: Vaswani et al. (2017), section 3.2.1, equation 1,
    https://arxiv.org/abs/1706.03762; the gradient is derived in the chapter
Axes: T queries, S keys, D width of query and key, E value width; leading axes
    (B batch, H heads, ...) stay
"""

from jaxtyping import Bool, Float
from torch import Tensor

from attnbook.attention.masked_softmax import masked_softmax


def weights(
    query: Float[Tensor, "*B T D"], key: Float[Tensor, "*B S D"]
) -> Float[Tensor, "*B T S"]:
    """Return softmax(query keyᵀ / √D) over the keys."""
    # The query is scaled, not the product: in half precision the product may
    # overflow before any factor could bring it back.
    scale = query.shape[-1] ** -0.5
    return (query * scale @ key.transpose(-2, -1)).softmax(dim=-1)


def attend(
    query: Float[Tensor, "*B T D"],
    key: Float[Tensor, "*B S D"],
    value: Float[Tensor, "*B S E"],
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*B T E"]:
    """Return each query's weighted average of the values it can attend to."""
    if mask is None:
        return weights(query, key) @ value
    scale = query.shape[-1] ** -0.5
    scores = query * scale @ key.transpose(-2, -1)
    # Chapter 3's softmax: an empty row gives zeros, and passes back zeros.
    return masked_softmax(scores, mask) @ value


def gradient(
    query: Float[Tensor, "*B T D"],
    key: Float[Tensor, "*B S D"],
    value: Float[Tensor, "*B S E"],
    upstream: Float[Tensor, "*B T E"],
) -> tuple[
    Float[Tensor, "*B T D"], Float[Tensor, "*B S D"], Float[Tensor, "*B S E"]
]:
    """Return a loss's gradients on query, key and value."""
    scale, w = query.shape[-1] ** -0.5, weights(query, key)
    dvalue = w.transpose(-2, -1) @ upstream
    dweights = upstream @ value.transpose(-2, -1)
    average = (w * dweights).sum(dim=-1, keepdim=True)
    dscores = w * (dweights - average) * scale
    return dscores @ key, dscores.transpose(-2, -1) @ query, dvalue
