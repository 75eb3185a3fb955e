"""Several heads over one sequence, and heads that share keys and values.

Source: Vaswani et al. (2017), section 3.2.2,
    https://arxiv.org/abs/1706.03762; Ainslie et al. (2023), section 2.2,
    https://arxiv.org/abs/2305.13245
Axes: B batch, H heads, G groups, T queries, S keys, C model width, D width of
    query and key, E value width
"""

from jaxtyping import Float
from torch import Tensor

from attnbook.attention.multi_head import merge_heads, split_heads
from attnbook.attention.scaled_dot_product import attend


def multi_head(
    x: Float[Tensor, "B T C"],
    W_query: Float[Tensor, "C C"],
    W_key: Float[Tensor, "C C"],
    W_value: Float[Tensor, "C C"],
    W_output: Float[Tensor, "C C"],
    heads: int,
) -> Float[Tensor, "B T C"]:
    """Return what every position takes from all, each head on its own."""
    query = split_heads(x @ W_query.T, heads)
    key = split_heads(x @ W_key.T, heads)
    value = split_heads(x @ W_value.T, heads)
    return merge_heads(attend(query, key, value)) @ W_output.T


def grouped_query(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G S D"],
    value: Float[Tensor, "B G S E"],
) -> Float[Tensor, "B H T E"]:
    """Return attention in which H / G consecutive heads share a group."""
    each = query.shape[1] // key.shape[1]
    key = key.repeat_interleave(each, dim=1)
    value = value.repeat_interleave(each, dim=1)
    return attend(query, key, value)
