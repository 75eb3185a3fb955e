"""Attention some queries at a time: exact, with less memory at once.

Chapter: chapters/10_cost
Source: none (own work); keys are cut too in chapter 11
Axes: T queries, S keys, D width of query and key, E of values, R rows of a
    strip; leading axes (B batch, H heads, ...) broadcast
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.scaled_dot_product import attend


def attend_in_strips(
    query: Float[Tensor, "*#B T D"],
    key: Float[Tensor, "*#B S D"],
    value: Float[Tensor, "*#B S E"],
    rows: int,
) -> Float[Tensor, "*B T E"]:
    """Return `attend`, computed for `rows` queries at a time.

    A query's weights need all keys but no other query. Forwards, the scores
    of one strip are there at once; with gradients, the weights of all strips
    are kept for the way back, and nothing is saved.

    Args:
        query: what is asked.
        key: what it is compared with.
        value: what is averaged; one value a key.
        rows: queries in a strip.

    Raises:
        ValueError: if a strip has no row, or the tensors do not fit.
    """
    if rows < 1:
        raise ValueError(f"a strip has at least 1 row, not {rows}")
    parts = query.split(rows, dim=-2)
    return torch.cat([attend(x, key, value) for x in parts], dim=-2)
