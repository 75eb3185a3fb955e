"""Relative positions: terms of the scores that depend on the distance.

`alibi` and `relative_bias` map (T, S) to (H, T, S), added to the scores. Shaw's
vectors are added to the keys and to the values: `shaw_bias` is the term of the
scores, `shaw_output` that of the output.

Source: ALiBi: Press et al. (2022), section 3, https://arxiv.org/abs/2108.12409,
    and their code for numbers of heads that are no powers of two; buckets:
    Raffel et al. (2020), section 2.1, https://arxiv.org/abs/1910.10683, and
    their code (departure: T5 does not divide by √D; `attend` does); vectors:
    Shaw et al. (2018), sections 3.1 to 3.3, equations 3 and 4,
    https://arxiv.org/abs/1803.02155 (here all heads share them)
Axes: B batch, H heads, T queries, S keys, D width of queries, E of values, R
    distances, 2 · reach + 1; the queries are the last T of S positions
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.positions.absolute import Device


def distances(queries: int, keys: int, device: Device = None) -> Int[Tensor, "T S"]:
    """Return key position minus query position, for every query and key."""
    s = torch.arange(keys, device=device)
    t = torch.arange(keys - queries, keys, device=device)
    return s - t[:, None]


def clip_distances(
    queries: int, keys: int, rows: int, device: Device = None
) -> Int[Tensor, "T S"]:
    """Return which of the table's rows, 2 · reach + 1, is that of each distance."""
    reach = rows // 2
    return distances(queries, keys, device).clamp(-reach, reach) + reach


def alibi_slopes(heads: int, device: Device = None) -> Float[Tensor, "H"]:
    """Return ALiBi's slopes: with 8 heads 1/2, 1/4, ..., 1/256.

    If the number of heads is not a power of two: the slopes of the next smaller
    power, then every other slope of the next larger power.
    """
    if heads < 1:
        raise ValueError(f"slopes need at least 1 head, not {heads}")
    power = 2 ** int(math.log2(heads))
    powers = torch.arange(1, power + 1, device=device)
    slopes = 2.0 ** (-8 / power * powers)
    if power == heads:
        return slopes
    extra = alibi_slopes(2 * power, device)[::2][: heads - power]
    return torch.cat([slopes, extra])


def alibi(
    heads: int, queries: int, keys: int, device: Device = None
) -> Float[Tensor, "H T S"]:
    """Return minus slope times distance, on both sides, in single precision."""
    away = distances(queries, keys, device).abs()
    return -alibi_slopes(heads, device)[:, None, None] * away


def relative_bias(
    table: Float[Tensor, "H R"], queries: int, keys: int
) -> Float[Tensor, "H T S"]:
    """Return table[h, clip(s - t, -reach, reach) + reach]; R = 2 reach + 1."""
    columns = table.shape[-1]
    if columns % 2 == 0:
        raise ValueError(f"a table of 2 · reach + 1 columns cannot have {columns}")
    return table[:, clip_distances(queries, keys, columns, table.device)]


def t5_bucket(
    distance: Int[Tensor, "*T"],
    buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> Int[Tensor, "*T"]:
    """Return the bucket of a distance s - t: exact if near, else logarithmic.

    Args:
        buckets: in total; half of those of each direction are for exact distances.
        max_distance: distances from here on share the last bucket.
        bidirectional: whether keys after the query use the second half of the
            buckets; otherwise they count as distance 0.
    """
    first = torch.zeros_like(distance)
    if bidirectional:
        buckets //= 2
        first = buckets * (distance > 0)
        away = distance.abs()
    else:
        away = -distance.clamp(max=0)
    exact = buckets // 2
    logarithmic = (away.clamp(min=1) / exact).log() / math.log(max_distance / exact)
    far = exact + (logarithmic * (buckets - exact)).long()
    return first + torch.where(away < exact, away, far.clamp(max=buckets - 1))


class AlibiBias(nn.Module):
    """ALiBi's bias; no parameters."""

    device_marker: Tensor

    def __init__(self, heads: int):
        super().__init__()
        self.heads = heads
        # An empty buffer that records the module's device; it is not saved.
        self.register_buffer("device_marker", torch.empty(0), persistent=False)

    def forward(self, queries: int, keys: int) -> Float[Tensor, "H T S"]:
        """Return the bias of the last `queries` of `keys` positions."""
        return alibi(self.heads, queries, keys, self.device_marker.device)


class T5Bias(nn.Module):
    """T5's bias: a learned number for each bucket and head."""

    def __init__(
        self,
        heads: int,
        buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
    ):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(heads, buckets))
        self.max_distance = max_distance
        self.bidirectional = bidirectional

    def forward(self, queries: int, keys: int) -> Float[Tensor, "H T S"]:
        """Return the bias of the last `queries` of `keys` positions."""
        away = distances(queries, keys, self.table.device)
        buckets = self.table.shape[-1]
        return self.table[
            :, t5_bucket(away, buckets, self.max_distance, self.bidirectional)
        ]


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
    """Learned vectors of `width` D = E, for keys and for values, by distance.

    Distances beyond `reach` are clipped to it.
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
