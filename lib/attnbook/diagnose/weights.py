"""Numbers about attention weights: symptoms, and no more.

Source: the similarity of heads as in Li et al. (2018), section 3.2,
    https://arxiv.org/abs/1810.10183 (there a training loss); rollout: Abnar and
    Zuidema (2020), section 3, https://arxiv.org/abs/2005.00928, with the mean over
    the heads of the authors' code, https://github.com/samiraabnar/attention_flow
Axes: B batch, L layers, H heads, T queries, S keys
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def entropy(weights: Float[Tensor, "*B S"]) -> Float[Tensor, "*B"]:
    """Return the entropy of each row, in nats; an empty row has 0.

    exp(entropy) is how many keys, weighted equally, would be as spread out. A
    weight of 0 receives no gradient, so that the entropy can be a penalty.
    """
    # At 0 the derivative is infinite, and infinity times a mask's 0 is NaN.
    return torch.special.entr(weights.masked_fill(weights == 0, 1.0)).sum(dim=-1)


def normalized_entropy(
    weights: Float[Tensor, "*B S"], mask: Bool[Tensor, "..."] | None = None
) -> Float[Tensor, "*B"]:
    """Return the entropy as a share of the largest possible one.

    0 is one key alone, 1 equal weights on all visible keys; a row
    that can attend to at most one key gives NaN.

    Args:
        weights: rows that sum to 1.
        mask: True where a query can attend; all keys unless given.
    """
    seen = torch.ones_like(weights, dtype=torch.bool)
    if mask is not None:
        seen = mask.expand_as(weights)
    most = seen.sum(dim=-1).to(weights.dtype).log()
    return (entropy(weights) / most).masked_fill(~(most > 0), torch.nan)


def head_similarity(weights: Float[Tensor, "B H T S"]) -> Float[Tensor, "H H"]:
    """Return the mean cosine of the rows of every two heads.

    Heads that share any key have a positive one: two uniform heads have 1, and
    so do two heads that attend to the same single key.
    """
    rows = torch.nn.functional.normalize(weights, dim=-1)
    return torch.einsum("bhts,bgts->hg", rows, rows) / (
        weights.shape[0] * weights.shape[2]
    )


def measure_weight_errors(
    weights: Float[Tensor, "*B T S"], mask: Bool[Tensor, "..."] | None = None
) -> dict[str, float]:
    """Return how far weights are from valid attention weights; 0 is valid.

    Args:
        weights: as a layer gives them, each head's own.
        mask: True where a query can attend; all keys unless given.

    Returns:
        Four numbers: `not finite`, the share of weights that are NaN or
        infinite; `sums`, how far a row with a visible key is from summing to 1;
        `hidden`, the largest weight on a key that is masked out; `negative`,
        the size of the most negative weight.
    """
    seen = torch.ones_like(weights, dtype=torch.bool)
    if mask is not None:
        seen = mask.expand_as(weights)
    finite = weights.isfinite()
    some = weights.detach().masked_fill(~finite, 0.0)
    sums = (some.sum(dim=-1) - 1).abs()
    # A row that is not finite is reported as such, not by its sum as well.
    counted = seen.any(dim=-1) & finite.all(dim=-1)
    return {
        "not finite": float((~finite).double().mean()),
        "sums": float(sums.masked_fill(~counted, 0.0).amax()),
        "hidden": float(some.masked_fill(seen, 0.0).abs().amax()),
        "negative": float(some.clamp(max=0).abs().amax()),
    }


def attention_rollout(weights: Float[Tensor, "L H T T"]) -> Float[Tensor, "T T"]:
    """Return one map of all layers, from inputs (columns) to outputs (rows).

    Each layer is the mean over its heads, half of it replaced by the identity
    for the residual connection, and its rows are divided by their sums. The
    layers are multiplied, the last one leftmost.

    Args:
        weights: of self-attention, the first layer first.
    """
    identity = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
    rollout = identity
    for layer in weights.mean(dim=1):
        mixed = 0.5 * layer + 0.5 * identity
        mixed = mixed / mixed.sum(dim=-1, keepdim=True)
        rollout = mixed @ rollout
    return rollout
