"""Graph attention: each node attends to its neighbors.

An edge leads from a source to a target. The target is the query, and the
sources of the edges into it are its keys; the softmax runs over these edges.
GAT's score is LeakyReLU(a[0] · W h_source + a[1] · W h_target). LeakyReLU is
increasing, so the order of the keys by score is that of a[0] · W h_source, the
same for every query: static attention. GATv2 applies LeakyReLU before the
product with a, and the order can differ from query to query: dynamic attention.

Source: Veličković et al. (2018), section 2.1, equations 1 to 4,
    https://arxiv.org/abs/1710.10903; Brody, Alon and Yahav (2022), section 3,
    https://arxiv.org/abs/2105.14491. Departures: no nonlinearity follows the
    sum; a node is its own neighbor only if it has an edge to itself; the papers
    write the target's half of a, and of GATv2's W, first; half precision is
    computed in single.
Axes: N nodes, E edges, I width of the features, F of a head, H heads; a leading
    axis of heads may be there or not
"""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.attention.tiled import promote_to_float32

SLOPE = 0.2  # of LeakyReLU below zero


def attend_graph(
    features: Float[Tensor, "N I"],
    edges: Int[Tensor, "2 E"],
    weight: Float[Tensor, "*H F I"],
    a: Float[Tensor, "*H 2 F"],
) -> Float[Tensor, "*H N F"]:
    """Return GAT's output: for each node a weighted mean of its neighbors.

    Args:
        features: h, one row for each node.
        edges: the source and the target of each edge.
        weight: W, applied as W h.
        a: scores W h of the source by a[0] and of the target by a[1].

    Returns:
        zeros for a node without incoming edges.

    Raises:
        ValueError: if an edge names a node that has no features.
    """
    check_edges(edges, len(features))
    h, weight, a = map(promote_to_float32, (features, weight, a))
    projected = h @ weight.mT
    scores = score_static(projected, edges, a)
    weights = softmax_by_target(scores, edges[1], len(h))
    return average_neighbors(projected, edges, weights).to(features.dtype)


def check_edges(edges: Int[Tensor, "2 E"], nodes: int) -> None:
    """Raise ValueError if an edge names a node that is not there."""
    unknown = (edges < 0) | (edges >= nodes)
    if unknown.any():
        found = int(edges[unknown][0])
        raise ValueError(
            f"an edge names the node {found}, but the graph has {nodes} nodes, "
            f"numbered from 0 to {nodes - 1}"
        )


def score_static(
    projected: Float[Tensor, "*H N F"],
    edges: Int[Tensor, "2 E"],
    a: Float[Tensor, "*H 2 F"],
) -> Float[Tensor, "*H E"]:
    """Return GAT's score of each edge; `projected` is W h of each node."""
    as_source, as_target = (projected @ a.mT).unbind(-1)
    source, target = edges
    scores = as_source[..., source] + as_target[..., target]
    return F.leaky_relu(scores, SLOPE)


def score_dynamic(
    sources: Float[Tensor, "*H N F"],
    targets: Float[Tensor, "*H N F"],
    edges: Int[Tensor, "2 E"],
    a: Float[Tensor, "*H F"],
) -> Float[Tensor, "*H E"]:
    """Return GATv2's score of each edge, from each node's products with W."""
    source, target = edges
    hidden = sources[..., source, :] + targets[..., target, :]
    return (F.leaky_relu(hidden, SLOPE) @ a[..., None])[..., 0]


def softmax_by_target(
    scores: Float[Tensor, "*H E"], target: Int[Tensor, " E"], nodes: int
) -> Float[Tensor, "*H E"]:
    """Return the softmax of the scores over the edges into each of N targets."""
    into = target.expand(scores.shape)
    largest = scores.new_zeros(*scores.shape[:-1], nodes).scatter_reduce(
        -1, into, scores.detach(), "amax", include_self=False
    )
    powers = (scores - largest[..., target]).exp()
    total = powers.new_zeros(largest.shape).index_add(-1, target, powers)
    return powers / total[..., target]


def average_neighbors(
    values: Float[Tensor, "*H N F"],
    edges: Int[Tensor, "2 E"],
    weights: Float[Tensor, "*H E"],
) -> Float[Tensor, "*H N F"]:
    """Return for each node the sum of its neighbors' values times the weights."""
    source, target = edges
    terms = weights[..., None] * values[..., source, :]
    return values.new_zeros(values.shape).index_add(-2, target, terms)
