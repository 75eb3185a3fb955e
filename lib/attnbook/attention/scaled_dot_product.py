"""Scaled dot-product attention: the reference implementation of the book.

Attention is a softmax-weighted average of values. Every exact version in later
chapters (multi-head, tiled, cached) is compared with `attend`, in the forward
and the backward pass, in tests/attnbook/attention/test_reference.py.

Source: Vaswani et al. (2017), section 3.2.1, equation 1,
    https://arxiv.org/abs/1706.03762. Departures: an additive bias; a boolean
    mask; a query that can attend to no key gets zeros. The gradient is derived
    in chapter 4; the term subtracted from each score's gradient is the D of Dao
    et al. (2022), appendix B.2, https://arxiv.org/abs/2205.14135.
Axes: T queries, S keys, D width of query and key, E value width; leading axes
    (B batch, H heads, ...) broadcast
"""

import torch
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


def require_fit(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raise ValueError if widths differ, or a key has no value."""
    require_equal_widths(query, key)
    require_values(key, value)


def require_alike(**tensors: Tensor) -> None:
    """Raise ValueError for several devices, or single beside double precision."""
    first, x = next(iter(tensors.items()))
    wide = torch.promote_types(x.dtype, torch.float32)
    for name, y in tensors.items():
        if not y.is_floating_point():
            raise ValueError(f"the {name} is {y.dtype}, but must be floating point")
        if y.device != x.device or wide != torch.promote_types(y.dtype, torch.float32):
            raise ValueError(
                f"the {first} is {x.dtype} on {x.device}, but the {name} is "
                f"{y.dtype} on {y.device}"
            )


def require_heads(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raise ValueError unless all are (B, H, rows, width) and keys have values.

    Query and key are equally wide, and H of the queries is a multiple of the keys'.
    """
    require_alike(query=query, key=key, value=value)
    given = {"query": query, "key": key, "value": value}
    for name, x in given.items():
        if x.ndim != 4 or not x.shape[-1]:
            raise ValueError(
                f"the {name} must have 4 axes (B, H, rows, width) and some width, but "
                f"has shape {tuple(x.shape)}"
            )
    require_fit(query, key, value)
    (B, H), (_, G) = query.shape[:2], key.shape[:2]
    if len(key) != B or value.shape[:2] != key.shape[:2] or not G or H % G:
        raise ValueError(
            f"batch and heads are {(B, H)} in the query, but {tuple(key.shape[:2])} in "
            f"the key and {tuple(value.shape[:2])} in the value"
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

    softmax(scale · query keyᵀ + bias) over the keys where the mask is True and
    the bias above -inf; a row without any such key is 0.

    Args:
        mask: True where a query can attend; broadcasts to (..., T, S).
        bias: added to the scaled scores; broadcasts to (..., T, S).
        scale: factor of the products; 1/√D unless given.

    Raises:
        ValueError: if query and key differ in width, or the mask is not
            boolean or does not fit.
    """
    return softmax_over_keys(scaled_scores(query, key, scale), mask, bias)


def attend(
    query: Float[Tensor, "*#B T D"],
    key: Float[Tensor, "*#B S D"],
    value: Float[Tensor, "*#B S E"],
    mask: Bool[Tensor, "..."] | None = None,
    bias: Float[Tensor, "..."] | None = None,
    scale: float | int | None = None,
) -> Float[Tensor, "*B T E"]:
    """Return each query's average of the values, weighted by `attention_weights`.

    Raises:
        ValueError: if there is not one value for each key; otherwise as there.
    """
    require_values(key, value)
    return attention_weights(query, key, mask, bias, scale) @ value


def attend_in_query_chunks(
    query: Float[Tensor, "*#B T D"],
    key: Float[Tensor, "*#B S D"],
    value: Float[Tensor, "*#B S E"],
    rows: int,
) -> Float[Tensor, "*B T E"]:
    """Return `attend`, computed for `rows` queries at a time.

    A query's weights depend on all keys but on no other query. Without
    gradients, only one chunk of scores is in memory at a time. With gradients,
    the weights of all chunks are kept for the backward pass, so no memory is
    saved. Chapter 11 divides the keys as well.
    """
    parts = query.split(rows, dim=-2)
    return torch.cat([attend(x, key, value) for x in parts], dim=-2)


def scores_gradient(
    weights: Float[Tensor, "*B T S"], upstream: Float[Tensor, "*B T S"]
) -> Float[Tensor, "*B T S"]:
    """Return the gradient on the scores, from the gradient on the weights.

    weights · (upstream - Σ weights · upstream): the gradient of a
    score is positive where its key's gradient exceeds the weighted average.
    """
    # Two nearly equal numbers are subtracted: in half precision their
    # difference would be mostly rounding error.
    dtype = weights.dtype
    wide = torch.promote_types(dtype, torch.float32)
    weights, upstream = weights.to(wide), upstream.to(wide)
    average = (weights * upstream).sum(dim=-1, keepdim=True)
    return (weights * (upstream - average)).to(dtype)


def attend_gradient(
    query: Float[Tensor, "*#B T D"],
    key: Float[Tensor, "*#B S D"],
    value: Float[Tensor, "*#B S E"],
    upstream: Float[Tensor, "*B T E"],
    mask: Bool[Tensor, "..."] | None = None,
    scale: float | None = None,
) -> tuple[
    Float[Tensor, "*#B T D"], Float[Tensor, "*#B S D"], Float[Tensor, "*#B S E"]
]:
    """Return the gradients on query, key and value of `attend`.

    Raises:
        ValueError: if `upstream`, the gradient on the output, has another shape.
    """
    weights = attention_weights(query, key, mask, scale=scale)
    output = *weights.shape[:-1], value.shape[-1]
    if upstream.shape[-2:] != output[-2:]:
        raise ValueError(
            f"upstream has shape {tuple(upstream.shape)} but the output {tuple(output)}"
        )
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    dvalue = weights.transpose(-2, -1) @ upstream
    dscores = scores_gradient(weights, upstream @ value.transpose(-2, -1))
    dquery = dscores @ key * scale
    dkey = dscores.transpose(-2, -1) @ (query * scale)
    return (
        dquery.sum_to_size(query.shape),
        dkey.sum_to_size(key.shape),
        dvalue.sum_to_size(value.shape),
    )
