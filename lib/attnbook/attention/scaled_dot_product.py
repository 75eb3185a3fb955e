"""Scaled dot-product attention: the reference implementation of the book.

Attention is a softmax-weighted average of values. Every exact version in later
chapters (multi-head, tiled, cached) is compared with `attend`, in the forward
and the backward pass, in
tests/attnbook/attention/test_reference.py.

Source: Vaswani et al. (2017), section 3.2.1, equation 1,
    https://arxiv.org/abs/1706.03762. Departures: an additive bias; a boolean
    mask; a query that can attend to no key gets zeros.
Axes: T queries, S keys, D width of query and key, E value width; leading axes
    (B batch, H heads, ...) broadcast
"""

from jaxtyping import Bool, Float
from torch import Tensor

from attnbook.attention.masked_softmax import softmax_over_keys


def require_equal_widths(query: Tensor, key: Tensor) -> None:
    """Raise ValueError if query and key differ in width."""
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"queries are {query.shape[-1]} wide but keys are {key.shape[-1]}: "
            "a dot product needs equal widths"
        )


def require_values(key: Tensor, value: Tensor) -> None:
    """Raise ValueError if there is not one value for each key."""
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(
            f"there are {key.shape[-2]} keys but {value.shape[-2]} values: "
            "each key needs its value"
        )


def scaled_scores(
    query: Float[Tensor, "*#B T D"],
    key: Float[Tensor, "*#B S D"],
    scale: float | int | None = None,
) -> Float[Tensor, "*B T S"]:
    """Return scale · query keyᵀ; the scale is 1/√D unless given.

    Raises:
        ValueError: if query and key differ in width.
    """
    require_equal_widths(query, key)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    # Scaled before the product: in half precision the product of two large
    # vectors overflows before it could be scaled down.
    return (query * scale) @ key.transpose(-2, -1)


def attention_weights(
    query: Float[Tensor, "*#B T D"],
    key: Float[Tensor, "*#B S D"],
    mask: Bool[Tensor, "..."] | None = None,
    bias: Float[Tensor, "..."] | None = None,
    scale: float | int | None = None,
) -> Float[Tensor, "*B T S"]:
    """Return the attention weights of each query over the keys; rows sum to 1.

    softmax(scale · query keyᵀ + bias) over the keys where the mask is True; a
    row without any True is 0.

    Args:
        query: the queries.
        key: the keys.
        mask: True where a query can attend; broadcasts to (..., T, S).
        bias: added to the scaled scores; broadcasts to (..., T, S).
        scale: factor of the products; 1/√D unless given.

    Raises:
        ValueError: if query and key differ in width, or the mask is not
            boolean or does not fit.
    """
    scores = scaled_scores(query, key, scale)
    if bias is not None:
        scores = scores + bias
    return softmax_over_keys(scores, mask)


def attend(
    query: Float[Tensor, "*#B T D"],
    key: Float[Tensor, "*#B S D"],
    value: Float[Tensor, "*#B S E"],
    mask: Bool[Tensor, "..."] | None = None,
    bias: Float[Tensor, "..."] | None = None,
    scale: float | int | None = None,
) -> Float[Tensor, "*B T E"]:
    """Return each query's average of the values, weighted by attention.

    Args:
        query: the queries.
        key: the keys.
        value: the values, one for each key.
        mask: True where a query can attend; broadcasts to (..., T, S).
        bias: added to the scaled scores; broadcasts to (..., T, S).
        scale: factor of the products; 1/√D unless given.

    Raises:
        ValueError: if there is not one value for each key, query and key differ
            in width, or the mask is not boolean or does not fit.
    """
    require_values(key, value)
    return attention_weights(query, key, mask, bias, scale) @ value
