"""A sequence that asks itself, another one, or only its own past.

Chapter: chapters/05_self_attention
Source: Vaswani et al. (2017), sections 3.2.1 and 3.2.3,
    https://arxiv.org/abs/1706.03762; there with several heads and an output
    projection, which chapter 6 adds.
Axes: B batch, T positions that ask, S positions asked, C and M width of what
    asks and of what is asked, D width of query and key, E value width
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnbook.scaled_dot_product import attend


def causal_mask(
    queries: int, keys: int, device: torch.device | str | None = None
) -> Bool[Tensor, "T S"]:
    """Return True where key s does not come after query t.

    The last query stands at the last key (bottom right): with more keys than
    queries the first query already has a past; with fewer, the first queries
    see nothing.
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
    """Return what x takes from memory: queries of x, keys and values of memory.

    Args:
        x: what asks.
        memory: what is asked.
        W_query: makes queries of x.
        W_key: makes keys of memory.
        W_value: makes values of memory.
        mask: True where a position of x may look; broadcasts to (B, T, S).

    Raises:
        ValueError: if a projection does not fit the width of what it projects.
    """
    for name, W, what in (
        ("query", W_query, x),
        ("key", W_key, memory),
        ("value", W_value, memory),
    ):
        if W.shape[-1] != what.shape[-1]:
            raise ValueError(
                f"W_{name} takes width {W.shape[-1]} but gets "
                f"{what.shape[-1]} columns"
            )
    return attend(x @ W_query.T, memory @ W_key.T, memory @ W_value.T, mask)


def self_attention(
    x: Float[Tensor, "B T C"],
    W_query: Float[Tensor, "D C"],
    W_key: Float[Tensor, "D C"],
    W_value: Float[Tensor, "E C"],
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "B T E"]:
    """Return what every position takes from all of them, itself included."""
    return cross_attention(x, x, W_query, W_key, W_value, mask)


def causal_self_attention(
    x: Float[Tensor, "B T C"],
    W_query: Float[Tensor, "D C"],
    W_key: Float[Tensor, "D C"],
    W_value: Float[Tensor, "E C"],
) -> Float[Tensor, "B T E"]:
    """Return what every position takes from itself and those before it."""
    mask = causal_mask(x.shape[1], x.shape[1], x.device)
    return self_attention(x, W_query, W_key, W_value, mask)
