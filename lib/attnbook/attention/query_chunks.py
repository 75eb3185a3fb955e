"""Exact attention one chunk of queries at a time, with a smaller peak memory.

Axes: T queries, S keys, D width of query and key, E of values, R queries
    in a chunk; leading axes (B batch, H heads, ...) broadcast
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.attention.scaled_dot_product import attend


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

    Args:
        query: the queries.
        key: the keys.
        value: the values, one for each key.
        rows: queries in a chunk.

    Raises:
        ValueError: if `rows` is below 1, or the shapes do not fit each other.
    """
    if rows < 1:
        raise ValueError(f"rows must be at least 1, not {rows}")
    parts = query.split(rows, dim=-2)
    return torch.cat([attend(x, key, value) for x in parts], dim=-2)
