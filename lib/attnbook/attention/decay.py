"""Decaying memories: products of queries and keys that fade with distance.

A memory that is multiplied by exp(r) before each position keeps, at position i,
the fraction exp(r_{j+1} + ... + r_i) of what was written at position j, where
r ≤ 0 is the rate: one number for each head, or one for each channel.

No rate is ever divided by. The usual formula multiplies the query by
exp(r_1 + ... + r_i) and the key by exp(-(r_1 + ... + r_j)), and the second
factor overflows where the memory decays quickly. With one rate for each head,
the decay between every two positions is computed instead. With one for each
channel that would be a matrix for each channel: there a chunk is cut into
halves again and again, between the halves every query comes after every key,
and both factors, measured from the cut, are at most 1.

Source: the scalar rate: Yang et al. (2025), section 3,
    https://arxiv.org/abs/2412.06464, and its sums: Dao and Gu (2024), listing
    1 (segsum), https://arxiv.org/abs/2405.21060; one rate for each channel:
    Kimi Team (2025), section 3, https://arxiv.org/abs/2510.26692. The halving
    is this book's; the papers cut a chunk into equal parts.
Axes: R positions of a chunk, D width of query and key
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attnbook.attention.tiled import promote_to_float32


def read_decay(log_decay: Tensor) -> Tensor:
    """Return the rates in at least single precision.

    Raises:
        ValueError: if one is positive, so that the memory would grow.
    """
    if log_decay.numel() and not (highest := log_decay.max()) <= 0:
        raise ValueError(
            f"log_decay must be at most 0, but is up to {highest:.3g}: the "
            "memory would grow"
        )
    return promote_to_float32(log_decay)


def sum_rates_to_end(
    rate: Float[Tensor, "*B R #D"],
) -> Float[Tensor, "*B R #D"]:
    """Return the sum of the rates after each position, the last one being 0."""
    later = F.pad(rate[..., 1:, :], (0, 0, 0, 1))
    return later.flip(-2).cumsum(-2).flip(-2)


def decay_chunk(
    key: Float[Tensor, "*B R D"], rate: Float[Tensor, "*B R #D"] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return three factors of a chunk; without a rate, ones.

    Args:
        key: the keys, for their type and device.
        rate: the logarithm of the decay before each position.

    Returns:
        What is left, at each position, of the memory at the beginning; at the
        end, of what each position wrote; and at the end, of the memory at the
        beginning, (..., D or 1, 1).
    """
    if rate is None:
        ones = torch.ones_like(key[..., :1])
        return ones, ones, ones[..., :1, :]
    from_start = rate.cumsum(-2).exp()
    whole = rate.sum(-2).exp()[..., None]
    return from_start, sum_rates_to_end(rate).exp(), whole


def compute_decays(rate: Float[Tensor, "*B R 1"]) -> Float[Tensor, "*B R R"]:
    """Return what is left at position i of what was written at position j.

    Entries above the diagonal are 0. Each sum has only the rates between both
    positions, since a difference of two sums from the beginning would lose
    digits.
    """
    R = rate.shape[-2]
    between = rate.expand(*rate.shape[:-1], R).tril(-1).cumsum(-2)
    return between.exp().tril()


def sum_decayed_products(
    query: Float[Tensor, "*B R D"],
    key: Float[Tensor, "*B R D"],
    rate: Float[Tensor, "*B R #D"] | None,
) -> Float[Tensor, "*B R R"]:
    """Return the products query_i · decay · key_j for j ≤ i.

    The decay is that between positions j and i. Entries above the diagonal are
    meaningless without a rate, and 0 with one.

    Args:
        query: the queries.
        key: the keys.
        rate: the logarithm of the decay before each position.
    """
    if rate is None:
        return query @ key.transpose(-2, -1)
    if rate.shape[-1] == 1:
        return (query @ key.transpose(-2, -1)) * compute_decays(rate)
    R = query.shape[-2]
    if R == 1:
        return (query * key).sum(dim=-1, keepdim=True)
    cut = (R + 1) // 2
    early, late = slice(0, cut), slice(cut, R)
    # From the cut to each late query, and from each early key to the cut.
    reading = query[..., late, :] * rate[..., late, :].cumsum(-2).exp()
    fading = sum_rates_to_end(rate[..., early, :]).exp()
    across = reading @ (key[..., early, :] * fading).transpose(-2, -1)
    first, second = (
        sum_decayed_products(*(x[..., half, :] for x in (query, key, rate)))
        for half in (early, late)
    )
    below = torch.cat([across, second], dim=-1)
    return torch.cat([F.pad(first, (0, R - cut)), below], dim=-2)
