"""Attention rollout: the weights of all layers multiplied into one map.

Source: Abnar and Zuidema (2020), section 3, https://arxiv.org/abs/2005.00928.
    The mean over the heads is that of the authors' code,
    https://github.com/samiraabnar/attention_flow.
Axes: L layers, H heads, T positions
"""

import torch
from jaxtyping import Float
from torch import Tensor


def attention_rollout(
    weights: Float[Tensor, "L H T T"],
) -> Float[Tensor, "T T"]:
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
