"""Attention weights of a graph's edges against the neighbors that are right.

Axes: H heads, E edges, N nodes
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def measure_mass(
    weights: Float[Tensor, " E"],
    target: Int[Tensor, " E"],
    right: Bool[Tensor, " E"],
    nodes: int,
) -> Float[Tensor, "2 N"]:
    """Return each node's share of weight on right edges, and of edges.

    The second row is the chance level: the share that equal weights have.

    Args:
        weights: one for each edge, above 0.
        target: the node that each edge leads to.
        right: whether attention to its source is right.
        nodes: N.

    Returns:
        NaN for a node without edges.
    """
    rows = torch.stack([weights, torch.ones_like(weights)])
    whole = rows.new_zeros(2, nodes).index_add(1, target, rows)
    part = rows.new_zeros(2, nodes).index_add(1, target, rows * right)
    return part / whole


def shuffle_within_targets(
    weights: Float[Tensor, "*H E"],
    target: Int[Tensor, " E"],
    rng: torch.Generator,
) -> Float[Tensor, "*H E"]:
    """Return the weights in a random order within each neighborhood.

    All heads have the same order.

    Args:
        weights: one for each edge.
        target: the node that each edge leads to.
        rng: draws the order.
    """
    drawn = torch.rand(len(target), generator=rng, device=rng.device)
    shuffled = drawn.to(target.device).argsort()
    shuffled = shuffled[target[shuffled].argsort(stable=True)]
    result = torch.empty_like(weights)
    result[..., target.argsort(stable=True)] = weights[..., shuffled]
    return result
