"""Online softmax: a running maximum and sum over scores that arrive in chunks.

The terms summed under an old maximum m are exp(s - m). Under a new maximum M
they should have been exp(s - M), which is the same times exp(m - M) for every
score. One factor therefore corrects the divisor sum so far, and no earlier
score is needed again.

Source: Milakov and Gimelshein (2018), section 3, algorithm 3,
    https://arxiv.org/abs/1805.02867; merging two parts: the same, section 3.1,
    and Dao et al. (2022), section 3.1, https://arxiv.org/abs/2205.14135
Axes: B any leading axes, N scores in a chunk, E value width
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
        chunks: the scores, in chunks of any length; each is read once.

    Raises:
        ValueError: if there is no chunk.
    """
    maximum = total = None
    for scores in chunks:
        if maximum is None or total is None:
            maximum = scores.new_full(scores.shape[:-1], -torch.inf)
            total = torch.zeros_like(maximum)
        highest = update_maximum(maximum, scores)
        exponentials = (scores - clamp_maximum(highest)[..., None]).exp()
        total = total * compute_rescaling(maximum, highest) + exponentials.sum(dim=-1)
        maximum = highest
    if maximum is None or total is None:
        raise ValueError("no scores: at least 1 chunk is needed, not 0")
    return maximum, total


def merge(
    output_a: Float[Tensor, "*B E"],
    lse_a: Float[Tensor, "*B"],
    output_b: Float[Tensor, "*B E"],
    lse_b: Float[Tensor, "*B"],
) -> tuple[Float[Tensor, "*B E"], Float[Tensor, "*B"]]:
    """Return attention to the keys of two parts from attention to each.

    A part with logsumexp -inf has no key to attend to; two such parts give
    zeros and -inf.

    Args:
        output_a: average of the values of the first part.
        lse_a: logarithm of the sum of exp(score) over the first part.
        output_b: of the second part.
        lse_b: of the second part.
    """
    highest = clamp_maximum(torch.maximum(lse_a, lse_b).detach())
    share_a, share_b = (lse_a - highest).exp(), (lse_b - highest).exp()
    total = share_a + share_b
    empty = total == 0
    divisor = total.masked_fill(empty, 1.0)
    output = (
        output_a * (share_a / divisor)[..., None]
        + output_b * (share_b / divisor)[..., None]
    )
    lse = (highest + divisor.log()).masked_fill(empty, -torch.inf)
    return output.to(output_a.dtype), lse


def update_maximum(
    maximum: Float[Tensor, "*B"], scores: Float[Tensor, "*B _"]
) -> Float[Tensor, "*B"]:
    """Return the maximum so far; a chunk may have no scores."""
    if not scores.shape[-1]:
        return maximum
    return torch.maximum(maximum, scores.amax(dim=-1))


def clamp_maximum(maximum: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Return the maximum, but 0 where it is -inf: -inf - -inf is NaN."""
    return maximum.masked_fill(maximum == -torch.inf, 0.0)


def compute_rescaling(
    old: Float[Tensor, "*B"], new: Float[Tensor, "*B"]
) -> Float[Tensor, "*B"]:
    """Return the factor, at most 1, of the sums under the old maximum."""
    return (old - clamp_maximum(new)).exp()
