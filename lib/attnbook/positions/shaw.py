"""Relative position representations: a learned vector for each distance.

Source: Shaw et al. (2018), sections 3.1 to 3.3, equations 3 and 4,
    https://arxiv.org/abs/1803.02155; here all heads share the vectors.
Axes: B batch, H heads, T queries, S keys, D width of queries, E of values, R
    distances, 2 · reach + 1; the queries are the last T of S positions
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.positions.biases import distances


def clip_distances(
    queries: int, keys: int, columns: int, device: torch.device | None = None
) -> Int[Tensor, "T S"]:
    """Return the table row of the clipped distance of each query and key."""
    reach = columns // 2
    return distances(queries, keys, device).clamp(-reach, reach) + reach


def shaw_bias(
    query: Float[Tensor, "B H T D"], table: Float[Tensor, "R D"], keys: int
) -> Float[Tensor, "B H T S"]:
    """Return query · a(s - t) / √D, to be added to the scores (equation 4).

    Each query is multiplied by the R vectors once. The products are then
    gathered for the keys, so that no (T, S, D) tensor is needed (section 3.3).
    """
    products = query @ table.T / query.shape[-1] ** 0.5
    rows = clip_distances(query.shape[2], keys, len(table), query.device)
    return products.gather(-1, rows.expand(*products.shape[:2], -1, -1))


def shaw_output(
    weights: Float[Tensor, "B H T S"], table: Float[Tensor, "R E"]
) -> Float[Tensor, "B H T E"]:
    """Return the weighted sum of a(s - t), to add to the output (eq. 3)."""
    T, S = weights.shape[2:]
    rows = clip_distances(T, S, len(table), weights.device)
    per_distance = weights.new_zeros(*weights.shape[:3], len(table))
    index = rows.expand_as(weights)
    return per_distance.scatter_add(-1, index, weights) @ table


class ShawEncoding(nn.Module):
    """Learned vectors of distances up to `reach`, for keys and for values.

    Args:
        width: D of a head, and E.
        reach: larger distances are clipped to this one.
    """

    def __init__(self, width: int, reach: int):
        super().__init__()
        rows = 2 * reach + 1
        self.keys = nn.Parameter(torch.randn(rows, width) / width**0.5)
        self.values = nn.Parameter(torch.randn(rows, width) / width**0.5)

    def forward(
        self, query: Float[Tensor, "B H T D"], keys: int
    ) -> Float[Tensor, "B H T S"]:
        """Return the term to be added to the scores."""
        return shaw_bias(query, self.keys, keys)

    def output(self, weights: Float[Tensor, "B H T S"]) -> Float[Tensor, "B H T E"]:
        """Return the term to be added to the output."""
        return shaw_output(weights, self.values)
