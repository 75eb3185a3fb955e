"""Distances as vectors: a query meets the distance, not only the key.

Chapter: chapters/08_positions
Source: Shaw et al. (2018), sections 3.1 to 3.3, equations 3 and 4,
    https://arxiv.org/abs/1803.02155; here all heads share the vectors.
Axes: B batch, H heads, T queries, S keys, D width of queries, E of values, R
    distances, 2 · reach + 1; the queries are the last T of S positions
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.positions.biases import distances


def clipped(
    queries: int, keys: int, columns: int, device: torch.device | None = None
) -> Int[Tensor, "T S"]:
    """Return the row of the table for each query and key."""
    reach = columns // 2
    return distances(queries, keys, device).clamp(-reach, reach) + reach


def shaw_bias(
    query: Float[Tensor, "B H T D"], table: Float[Tensor, "R D"], keys: int
) -> Float[Tensor, "B H T S"]:
    """Return query · a(s - t) / √D: added to the scores (equation 4).

    Each query meets the R vectors once; the products are then spread over the
    keys, so that no (T, S, D) is ever made (section 3.3).
    """
    met = query @ table.T / query.shape[-1] ** 0.5
    rows = clipped(query.shape[2], keys, len(table), query.device)
    return met.gather(-1, rows.expand(*met.shape[:2], -1, -1))


def shaw_output(
    weights: Float[Tensor, "B H T S"], table: Float[Tensor, "R E"]
) -> Float[Tensor, "B H T E"]:
    """Return the weights' average of a(s - t): added to the output (eq. 3)."""
    rows = clipped(*weights.shape[2:], len(table), weights.device)
    per_distance = weights.new_zeros(*weights.shape[:3], len(table))
    index = rows.expand_as(weights)
    return per_distance.scatter_add(-1, index, weights) @ table


class Shaw(nn.Module):
    """The vectors of distances up to `reach`, for keys and for values.

    Args:
        width: D of a head, and E.
        reach: farther keys count as if they stood so far.
    """

    def __init__(self, width: int, reach: int):
        super().__init__()
        rows = 2 * reach + 1
        self.keys = nn.Parameter(torch.randn(rows, width) / width**0.5)
        self.values = nn.Parameter(torch.randn(rows, width) / width**0.5)

    def forward(
        self, query: Float[Tensor, "B H T D"], keys: int
    ) -> Float[Tensor, "B H T S"]:
        """Return what is added to the scores."""
        return shaw_bias(query, self.keys, keys)

    def output(
        self, weights: Float[Tensor, "B H T S"]
    ) -> Float[Tensor, "B H T E"]:
        """Return what is added to the output."""
        return shaw_output(weights, self.values)
