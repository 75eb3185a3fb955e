"""The backward pass of attention, derived by hand.

Source: the derivation is in the chapter. The term subtracted from each
    score's gradient is the D of Dao et al. (2022), appendix B.2,
    https://arxiv.org/abs/2205.14135
Axes: T queries, S keys, D width of query and key, E value width; leading axes
    (B batch, H heads, ...) broadcast
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnbook.attention.scaled_dot_product import attention_weights


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

    Args:
        query: the queries.
        key: the keys.
        value: the values.
        upstream: the gradient on the output.
        mask: True where a query can attend.
        scale: factor of the products; 1/√D unless given.

    Raises:
        ValueError: if upstream does not have the output's shape.
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


def jacobian_norm(weights: Float[Tensor, "*B S"]) -> Float[Tensor, "*B"]:
    """Return the Frobenius norm of d weights / d scores of each row.

    The matrix is diag(w) - w wᵀ; the sum of its squares is
    Σw² - 2 Σw³ + (Σw²)², so that it need not be built.
    """
    squares = weights.square().sum(dim=-1)
    cubes = weights.pow(3).sum(dim=-1)
    return (squares - 2 * cubes + squares.square()).clamp(min=0).sqrt()
