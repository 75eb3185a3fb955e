"""Diagnosing attention: what its weights tell, and what a test must show.

Numbers about weights (entropy, uniformity, similarity of heads) are symptoms;
the two tests change an input that must not matter, and look whether it does.

Chapter: chapters/06_multi_head
Source: the similarity of heads as in Li et al. (2018), section 3.2,
    https://arxiv.org/abs/1810.10183 (there a training loss)
Axes: B batch, H heads, T queries, S keys, C width
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def entropy(weights: Float[Tensor, "*B S"]) -> Float[Tensor, "*B"]:
    """Return the entropy of each row, in nats; an empty row has 0.

    exp(entropy) is how many keys, weighted equally, would be as spread out.
    """
    return torch.special.entr(weights).sum(dim=-1)


def uniformity(
    weights: Float[Tensor, "*B S"], mask: Bool[Tensor, "..."] | None = None
) -> Float[Tensor, "*B"]:
    """Return the entropy as a share of the largest possible one.

    0 is one key alone, 1 all visible keys alike; a row that sees at most one
    key has no choice, and gives NaN.

    Args:
        weights: rows that sum to 1.
        mask: True where a query may look; all keys unless given.
    """
    seen = torch.ones_like(weights, dtype=torch.bool)
    if mask is not None:
        seen = mask.expand_as(weights)
    most = seen.sum(dim=-1).to(weights.dtype).log()
    return (entropy(weights) / most).masked_fill(~(most > 0), torch.nan)


def head_similarity(
    weights: Float[Tensor, "B H T S"],
) -> Float[Tensor, "H H"]:
    """Return the mean cosine of the rows of every two heads.

    Heads that look anywhere in common have a positive one: two heads that are
    uniform have 1, and so have two that look at the same key.
    """
    rows = torch.nn.functional.normalize(weights, dim=-1)
    return torch.einsum("bhts,bgts->hg", rows, rows) / (
        weights.shape[0] * weights.shape[2]
    )


def leak_test(
    model: Callable[[Tensor], Tensor], x: Float[Tensor, "B T C"]
) -> Float[Tensor, " T"]:
    """Return how much each output changes when only later inputs change.

    All zeros (or rounding) is what a causal model gives.

    Args:
        model: maps inputs (B, T, C) to outputs with the same first two axes.
        x: any inputs; the changed ones are these, negated and shifted.
    """
    before = model(x)
    changes = [torch.zeros(())] * x.shape[1]
    for t in range(x.shape[1] - 1):
        changed = torch.cat([x[:, : t + 1], 1 - x[:, t + 1 :]], dim=1)
        after = model(changed)
        changes[t] = (after[:, t] - before[:, t]).abs().max().detach()
    return torch.stack([c.to(before.dtype) for c in changes])


def padding_test(
    model: Callable[[Tensor, Tensor], Tensor],
    x: Float[Tensor, "B T C"],
    lengths: Int[Tensor, " B"],
) -> Float[Tensor, " B"]:
    """Return how much the real outputs change when only padding changes.

    Args:
        model: maps inputs (B, T, C) and lengths to outputs (B, T, ...).
        x: inputs; those at and after a sequence's length are padding.
        lengths: of the sequences.
    """
    real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
    changed = torch.where(real[..., None], x, 1 - x)
    difference = (model(changed, lengths) - model(x, lengths)).abs()
    return difference.flatten(2).amax(2).masked_fill(~real, 0).amax(1).detach()
