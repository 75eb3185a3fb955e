"""A softmax over scores that arrive in parts: a maximum and a sum, kept right.

What was summed under an old maximum m is exp(s - m); under a new one, M, it
should have been exp(s - M), which is the same times exp(m - M), for every score
alike. So one factor makes good all that was summed before, and nothing that
has gone by is needed again.

Chapter: chapters/11_flash_attention
Source: Milakov and Gimelshein (2018), section 3, algorithm 3,
    https://arxiv.org/abs/1805.02867; two parts joined: the same, section 3.1,
    and Dao et al. (2022), section 3.1, https://arxiv.org/abs/2205.14135
Axes: B any leading axes, N scores in a part, E value width
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor


def online_softmax(
    chunks: Iterable[Float[Tensor, "*B _"]],
) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B"]]:
    """Return each row's maximum, and its total of exp(score - maximum).

    A row that is empty, or has only scores of -inf, gets -inf and 0.

    Args:
        chunks: the scores, in parts of any length; each is looked at once.

    Raises:
        ValueError: if there is no part.
    """
    maximum = total = None
    for scores in chunks:
        if maximum is None:
            maximum = scores.new_full(scores.shape[:-1], -torch.inf)
            total = torch.zeros_like(maximum)
        highest = largest(maximum, scores)
        raised = (scores - finite(highest)[..., None]).exp()
        total = total * correction(maximum, highest) + raised.sum(dim=-1)
        maximum = highest
    if maximum is None:
        raise ValueError("no scores: at least 1 part is needed, not 0")
    return maximum, total


def merge(
    output_a: Float[Tensor, "*B E"],
    lse_a: Float[Tensor, "*B"],
    output_b: Float[Tensor, "*B E"],
    lse_b: Float[Tensor, "*B"],
) -> tuple[Float[Tensor, "*B E"], Float[Tensor, "*B"]]:
    """Return attention to the keys of two parts from attention to each.

    A part with logsumexp -inf saw no key; two such parts give zeros and -inf.

    Args:
        output_a: average of the values of the first part.
        lse_a: logarithm of the sum of exp(score) over the first part.
        output_b: of the second part.
        lse_b: of the second part.
    """
    highest = finite(torch.maximum(lse_a, lse_b).detach())
    share_a, share_b = (lse_a - highest).exp(), (lse_b - highest).exp()
    total = share_a + share_b
    none = total == 0
    whole = total.masked_fill(none, 1.0)
    output = (
        output_a * (share_a / whole)[..., None]
        + output_b * (share_b / whole)[..., None]
    )
    lse = (highest + whole.log()).masked_fill(none, -torch.inf)
    return output.to(output_a.dtype), lse


def largest(
    maximum: Float[Tensor, "*B"], scores: Float[Tensor, "*B _"]
) -> Float[Tensor, "*B"]:
    """Return the maximum so far, of rows that may have no score at all."""
    if not scores.shape[-1]:
        return maximum
    return torch.maximum(maximum, scores.amax(dim=-1))


def finite(maximum: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Return the maximum, 0 where nothing was seen: -inf - -inf is NaN."""
    return maximum.masked_fill(maximum == -torch.inf, 0.0)


def correction(
    old: Float[Tensor, "*B"], new: Float[Tensor, "*B"]
) -> Float[Tensor, "*B"]:
    """Return what sums made under the old maximum are multiplied by: ≤ 1."""
    return (old - finite(new)).exp()
