"""Losses that train a model to predict as well and attend elsewhere.

Source: the penalty is R of Pruthi et al. (2020), section 3,
    https://arxiv.org/abs/1909.07913. The adversary's loss is that of Wiegreffe
    and Pinter (2019), section 4, https://aclanthology.org/D19-1002.
Axes: B batch, S words, K classes
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

LARGEST = 1 - 1e-6  # weight in the penalty, which would be infinite at 1


def total_variation(
    p: Float[Tensor, "*#B K"], q: Float[Tensor, "*#B K"]
) -> Float[Tensor, "*B"]:
    """Return half the sum of absolute differences of two distributions.

    0 means equal distributions; 1 is the largest value.
    """
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


def compute_deception_penalty(
    weights: Float[Tensor, "B S"], forbidden: Bool[Tensor, "B S"]
) -> Float[Tensor, ""]:
    """Return -log(1 - m), where m is the weight on forbidden words.

    Args:
        weights: attention weights; each row sums to 1.
        forbidden: True for the words that must receive little weight.

    Returns:
        The mean over the batch: 0 without weight on forbidden words.
    """
    mass = (weights * forbidden).sum(dim=-1)
    return -torch.log1p(-mass.clamp(max=LARGEST)).mean()


def compute_adversary_loss(
    output: Float[Tensor, "B K"],
    wanted: Float[Tensor, "B K"],
    weights: Float[Tensor, "B S"],
    avoided: Float[Tensor, "B S"],
    strength: float,
) -> Float[Tensor, ""]:
    """Return how far outputs differ, less how far attention weights do.

    Args:
        output: probabilities that the adversary predicts.
        wanted: probabilities of the model that it imitates.
        weights: the adversary's attention weights.
        avoided: attention weights of the model that it imitates.
        strength: λ, how much the divergence of the weights counts.

    Returns:
        The mean over the batch.
    """
    difference = total_variation(output, wanted)
    return (difference - strength * kullback_leibler(weights, avoided)).mean()
