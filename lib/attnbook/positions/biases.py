"""Positions as a bias of the scores: what a distance costs or earns.

Chapter: chapters/08_positions
Source: ALiBi: Press et al. (2022), section 3, https://arxiv.org/abs/2108.12409
    (for other numbers of heads than powers of two, their code); buckets: Raffel
    et al. (2020), section 2.1, https://arxiv.org/abs/1910.10683, and their
    code. Departure: T5 does not divide by √D; `attend` does.
Axes: H heads, T queries, S keys; the queries are the last T of S positions
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


def distances(
    queries: int, keys: int, device: torch.device | str | None = None
) -> Int[Tensor, "T S"]:
    """Return how far each key stands after its query; before it, negative.

    The last query stands at the last key (bottom right), as in `causal_mask`.
    """
    s = torch.arange(keys, device=device)
    t = torch.arange(keys - queries, keys, device=device)
    return s - t[:, None]


def alibi_slopes(heads: int) -> Float[Tensor, "H"]:
    """Return ALiBi's slopes: with 8 heads 1/2, 1/4, ..., 1/256.

    For a number of heads that is no power of two: those of the power below,
    and then every other slope of the power above.

    Raises:
        ValueError: if there is no head.
    """
    if heads < 1:
        raise ValueError(f"slopes need at least 1 head, not {heads}")
    whole = 2 ** int(math.log2(heads))
    slopes = 2.0 ** (-8 / whole * torch.arange(1, whole + 1))
    if whole == heads:
        return slopes
    return torch.cat([slopes, alibi_slopes(2 * whole)[::2][: heads - whole]])


def alibi(heads: int, queries: int, keys: int) -> Float[Tensor, "H T S"]:
    """Return minus slope times distance, on both sides of the query.

    In single precision on the CPU; `.to(query)` fits it to a query.
    """
    away = distances(queries, keys).abs()
    return -alibi_slopes(heads)[:, None, None] * away


def relative_bias(
    table: Float[Tensor, "H R"], queries: int, keys: int
) -> Float[Tensor, "H T S"]:
    """Return table[h, clip(s - t, -reach, reach) + reach]; R = 2 reach + 1.

    Raises:
        ValueError: if the table has an even number of columns.
    """
    columns = table.shape[-1]
    if columns % 2 == 0:
        raise ValueError(
            f"a table of 2 · reach + 1 columns cannot have {columns}"
        )
    reach = columns // 2
    away = distances(queries, keys, table.device)
    return table[:, away.clamp(-reach, reach) + reach]


def t5_bucket(
    distance: Int[Tensor, "*T"],
    buckets: int = 32,
    reach: int = 128,
    both_ways: bool = True,
) -> Int[Tensor, "*T"]:
    """Return the bucket of a distance s - t: exact if near, else logarithmic.

    Args:
        distance: of the key from its query.
        buckets: how many in all; a side's first half is for exact distances.
        reach: distances from here on share the last bucket.
        both_ways: whether keys after the query have buckets of their own, the
            second half; else they count as distance 0.
    """
    first = torch.zeros_like(distance)
    if both_ways:
        buckets //= 2
        first = buckets * (distance > 0)
        away = distance.abs()
    else:
        away = -distance.clamp(max=0)
    exact = buckets // 2
    grown = (away.clamp(min=1) / exact).log() / math.log(reach / exact)
    far = exact + (grown * (buckets - exact)).long()
    return first + torch.where(away < exact, away, far.clamp(max=buckets - 1))


class Alibi(nn.Module):
    """ALiBi's bias; nothing is learned."""

    def __init__(self, heads: int):
        super().__init__()
        self.heads = heads

    def forward(self, queries: int, keys: int) -> Float[Tensor, "H T S"]:
        """Return the bias of the last queries among so many keys."""
        return alibi(self.heads, queries, keys)


class T5Bias(nn.Module):
    """A learned number for each bucket and head."""

    def __init__(
        self,
        heads: int,
        buckets: int = 32,
        reach: int = 128,
        both_ways: bool = True,
    ):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(heads, buckets))
        self.reach, self.both_ways = reach, both_ways

    def forward(self, queries: int, keys: int) -> Float[Tensor, "H T S"]:
        """Return the bias of the last queries among so many keys."""
        away = distances(queries, keys, self.table.device)
        buckets = self.table.shape[-1]
        return self.table[
            :, t5_bucket(away, buckets, self.reach, self.both_ways)
        ]
