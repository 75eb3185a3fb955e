"""Self-attention, cross-attention and causal self-attention in a few lines.

Source: Vaswani et al. (2017), sections 3.2.1 and 3.2.3,
    https://arxiv.org/abs/1706.03762
Axes: B batch, T positions that ask, S positions asked, C and M their widths, D
    width of query and key, E value width
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.attention.scaled_dot_product import attend


def self_attention(
    x: Float[Tensor, "B T C"],
    W_query: Float[Tensor, "D C"],
    W_key: Float[Tensor, "D C"],
    W_value: Float[Tensor, "E C"],
) -> Float[Tensor, "B T E"]:
    """Return what every position takes from all of them."""
    return attend(x @ W_query.T, x @ W_key.T, x @ W_value.T)


def cross_attention(
    x: Float[Tensor, "B T C"],
    memory: Float[Tensor, "B S M"],
    W_query: Float[Tensor, "D C"],
    W_key: Float[Tensor, "D M"],
    W_value: Float[Tensor, "E M"],
) -> Float[Tensor, "B T E"]:
    """Return what x takes from memory."""
    return attend(x @ W_query.T, memory @ W_key.T, memory @ W_value.T)


def causal_self_attention(
    x: Float[Tensor, "B T C"],
    W_query: Float[Tensor, "D C"],
    W_key: Float[Tensor, "D C"],
    W_value: Float[Tensor, "E C"],
) -> Float[Tensor, "B T E"]:
    """Return what every position takes from itself and those before it."""
    T = x.shape[1]
    past = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
    return attend(x @ W_query.T, x @ W_key.T, x @ W_value.T, past)
