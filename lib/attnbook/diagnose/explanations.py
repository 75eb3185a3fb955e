"""Measures of importance, to test attention as an explanation.

Each measure of importance gives every word of a sequence a number. The
functions take callables instead of models, so that they work on models from
elsewhere.

Source: erasure and the gradient as in Jain and Wallace (2019), section 4,
    https://arxiv.org/abs/1902.10186. Departures: the gradient also flows
    through the attention weights, and is multiplied by the input. The norm of
    the weighted value is that of Kobayashi et al. (2020),
    https://arxiv.org/abs/2004.10102.
Axes: B batch, S words, E value width, K classes
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


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


def measure_erasure(
    predict: Callable[[Int[Tensor, "B S-1"]], Float[Tensor, "B K"]],
    words: Int[Tensor, "B S"],
    output: Float[Tensor, "B K"],
) -> Float[Tensor, "B S"]:
    """Return how much the output changes when each word is deleted.

    Args:
        predict: from words to the probabilities of the classes.
        words: the sequences; the shorter ones have S - 1 words.
        output: the probabilities for the complete sequences.

    Returns:
        The total variation distance from `output`, between 0 and 1.
    """
    changes = []
    for gone in range(words.shape[1]):
        shorter = torch.cat([words[:, :gone], words[:, gone + 1 :]], dim=1)
        changes.append(total_variation(predict(shorter), output))
    return torch.stack(changes, dim=1)


def multiply_gradient_by_input(
    embedding: nn.Module, predict: Callable[[], Float[Tensor, "B K"]]
) -> Float[Tensor, "B S"]:
    """Return |gradient · vector| of each word for the predicted class.

    Args:
        embedding: the layer whose output is the words' vectors.
        predict: runs the model, which calls `embedding` once, and returns the
            probabilities of the classes.
    """
    kept: list[Tensor] = []

    def keep(module, given, vectors: Tensor) -> Tensor:
        kept.append(vectors.detach().requires_grad_())
        return kept[-1]

    hook = embedding.register_forward_hook(keep)
    try:
        with torch.enable_grad():
            likeliest = predict().amax(dim=-1).sum()
        (gradient,) = torch.autograd.grad(likeliest, kept)
    finally:
        hook.remove()
    return (gradient * kept[0].detach()).sum(dim=-1).abs()


def multiply_weights_by_norms(
    weights: Float[Tensor, "B S"], values: Float[Tensor, "B S E"]
) -> Float[Tensor, "B S"]:
    """Return the length of each weighted value: weight times norm."""
    return weights * values.norm(dim=-1)


def measure_naming(
    importance: Float[Tensor, "B S"], evidence: Int[Tensor, " B"]
) -> float:
    """Return the share of sequences whose most important word is the evidence.

    Chance is 1/S.

    Args:
        importance: of each word.
        evidence: the position of the word that determines the answer.
    """
    return float((importance.argmax(dim=-1) == evidence).double().mean())
