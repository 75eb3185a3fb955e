"""Self-attention, cross-attention and causal self-attention.

Source: Vaswani et al. (2017), sections 3.2.1 and 3.2.3,
    https://arxiv.org/abs/1706.03762; there with several heads and an output
    projection, which chapter 6 adds.
Axes: B batch, T queries, S keys, C width of the queries' input, M width of the
    memory, D width of query and key, E value width
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnbook.attention.scaled_dot_product import attend


def causal_mask(
    queries: int, keys: int, device: torch.device | str | None = None
) -> Bool[Tensor, "T S"]:
    """Return True where key s does not come after query t.

    The last query is aligned with the last key (bottom right): with more keys
    than queries the first query has earlier keys; with fewer, the first queries
    can attend to no key.
    """
    ones = torch.ones(queries, keys, dtype=torch.bool, device=device)
    return ones.tril(diagonal=keys - queries)


def cross_attention(
    x: Float[Tensor, "B T C"],
    memory: Float[Tensor, "B S M"],
    W_query: Float[Tensor, "D C"],
    W_key: Float[Tensor, "D M"],
    W_value: Float[Tensor, "E M"],
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "B T E"]:
    """Return attention of queries from x to keys and values from memory.

    Args:
        mask: True where a position of x can attend; broadcasts to (B, T, S).

    Raises:
        ValueError: if a projection does not fit the width of what it projects.
    """
    for name, W, inputs in (
        ("query", W_query, x),
        ("key", W_key, memory),
        ("value", W_value, memory),
    ):
        if W.shape[-1] != inputs.shape[-1]:
            raise ValueError(
                f"W_{name} takes width {W.shape[-1]} but gets "
                f"{inputs.shape[-1]} columns"
            )
    return attend(x @ W_query.T, memory @ W_key.T, memory @ W_value.T, mask)


def self_attention(
    x: Float[Tensor, "B T C"],
    W_query: Float[Tensor, "D C"],
    W_key: Float[Tensor, "D C"],
    W_value: Float[Tensor, "E C"],
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "B T E"]:
    """Return attention of every position to all positions, itself included."""
    return cross_attention(x, x, W_query, W_key, W_value, mask)


def causal_self_attention(
    x: Float[Tensor, "B T C"],
    W_query: Float[Tensor, "D C"],
    W_key: Float[Tensor, "D C"],
    W_value: Float[Tensor, "E C"],
) -> Float[Tensor, "B T E"]:
    """Return attention of every position to itself and earlier positions."""
    mask = causal_mask(x.shape[1], x.shape[1], x.device)
    return self_attention(x, W_query, W_key, W_value, mask)
