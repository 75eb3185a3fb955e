"""Distances of distributions, such as attention weights and outputs.

Axes: B leading axes, S words, K classes
"""

import torch
from jaxtyping import Float
from torch import Tensor


def total_variation(
    p: Float[Tensor, "*#B K"], q: Float[Tensor, "*#B K"]
) -> Float[Tensor, "*B"]:
    """Return half the sum of absolute differences, from 0 (equal) to 1."""
    return (p - q).abs().sum(dim=-1) / 2


def kullback_leibler(
    p: Float[Tensor, "*#B S"], q: Float[Tensor, "*#B S"]
) -> Float[Tensor, "*B"]:
    """Return the divergence of p from q in nats; it has no upper bound."""
    tiny = torch.finfo(q.dtype).tiny
    return (torch.xlogy(p, p) - p * q.clamp(min=tiny).log()).sum(dim=-1)


def jensen_shannon(
    p: Float[Tensor, "*#B S"], q: Float[Tensor, "*#B S"]
) -> Float[Tensor, "*B"]:
    """Return the divergence of two distributions in nats, at most log 2."""
    mean = (p + q) / 2
    return (kullback_leibler(p, mean) + kullback_leibler(q, mean)) / 2
