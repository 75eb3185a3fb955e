"""Networks that classify the nodes of a graph by their neighbors.

A layer projects the features of each node and returns for each node a weighted
mean of its neighbors' projections, in several heads. The layers differ in the
weights alone: equal for all neighbors, GAT's or GATv2's. On a graph whose only
edges lead from each node to itself, every weight is 1 and all layers are the
same linear layer; a network on such a graph is a multilayer perceptron (MLP).

Source: Veličković et al. (2018), sections 2.1 and 3.3,
    https://arxiv.org/abs/1710.10903, without dropout of the attention weights;
    Brody, Alon and Yahav (2022), section 3.3,
    https://arxiv.org/abs/2105.14491, with one weight matrix for sources and
    targets, so that both kinds have about as many parameters.
Axes: N nodes, E edges, I width of the features, H heads, F width of a head, K
    classes
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.graph import (
    average_neighbors,
    check_edges,
    score_dynamic,
    score_static,
    softmax_by_target,
)


def join_neighbors(links: Int[Tensor, "2 L"], nodes: int) -> Int[Tensor, "2 E"]:
    """Return the edges of links in both directions and of each node to itself.

    Each edge is there once.
    """
    check_edges(links, nodes)
    found = torch.cat([links, links.flip(0), join_selves(links, nodes)], dim=1)
    return found.unique(dim=1)


def join_selves(like: Int[Tensor, "2 L"], nodes: int) -> Int[Tensor, "2 N"]:
    """Return the edges of each node to itself, on the device of other edges."""
    return torch.arange(nodes, device=like.device).expand(2, nodes)


class NeighborMean(nn.Module):
    """Returns the mean of the neighbors' projections; the heads do not differ."""

    def __init__(self, inputs: int, width: int, heads: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, width, inputs))
        nn.init.normal_(self.weight, std=inputs**-0.5)

    def score(
        self, projected: Float[Tensor, "H N F"], edges: Int[Tensor, "2 E"]
    ) -> Float[Tensor, "H E"]:
        """Return the scores of the edges: zeros, so that all weigh the same."""
        return projected.new_zeros(len(projected), edges.shape[1])

    def compute_weights(
        self, features: Float[Tensor, "N I"], edges: Int[Tensor, "2 E"]
    ) -> Float[Tensor, "H E"]:
        """Return the weight of each edge, with the sum 1 into each node."""
        scores = self.score(features @ self.weight.mT, edges)
        return softmax_by_target(scores, edges[1], len(features))

    def forward(
        self,
        features: Float[Tensor, "N I"],
        edges: Int[Tensor, "2 E"],
        weights: Float[Tensor, "H E"] | None = None,
    ) -> Float[Tensor, "N HF"]:
        """Return the heads' means, one head after the other."""
        projected = features @ self.weight.mT
        if weights is None:
            scores = self.score(projected, edges)
            weights = softmax_by_target(scores, edges[1], len(features))
        output = average_neighbors(projected, edges, weights)
        return output.transpose(0, 1).flatten(1)


class GraphAttention(NeighborMean):
    """GAT: weights the neighbors by its static score."""

    def __init__(self, inputs: int, width: int, heads: int):
        super().__init__(inputs, width, heads)
        self.a = nn.Parameter(torch.empty(heads, 2, width))
        nn.init.normal_(self.a, std=width**-0.5)

    def score(
        self, projected: Float[Tensor, "H N F"], edges: Int[Tensor, "2 E"]
    ) -> Float[Tensor, "H E"]:
        return score_static(projected, edges, self.a)


class GraphAttentionV2(NeighborMean):
    """GATv2: weights the neighbors by its dynamic score."""

    def __init__(self, inputs: int, width: int, heads: int):
        super().__init__(inputs, width, heads)
        self.a = nn.Parameter(torch.empty(heads, width))
        nn.init.normal_(self.a, std=width**-0.5)

    def score(
        self, projected: Float[Tensor, "H N F"], edges: Int[Tensor, "2 E"]
    ) -> Float[Tensor, "H E"]:
        return score_dynamic(projected, projected, edges, self.a)


NEIGHBOR_LAYERS: dict[str, type[NeighborMean]] = {
    "mean": NeighborMean,
    "GAT": GraphAttention,
    "GATv2": GraphAttentionV2,
}


class GraphNetwork(nn.Module):
    """Two layers of one kind, with ELU and dropout between them.

    `width` and `heads` are those of the first layer; the second has one head.
    """

    def __init__(
        self,
        layer: type[NeighborMean],
        inputs: int,
        classes: int,
        width: int = 8,
        heads: int = 8,
        dropout: float = 0.6,
    ):
        super().__init__()
        self.first = layer(inputs, width, heads)
        self.second = layer(width * heads, classes, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        features: Float[Tensor, "N I"],
        edges: Int[Tensor, "2 E"],
        weights: Sequence[Tensor | None] = (None, None),
    ) -> Float[Tensor, "N K"]:
        check_edges(edges, len(features))
        hidden = self.encode(features, edges, weights[0])
        return self.second(hidden, edges, weights[1])

    def encode(
        self,
        features: Float[Tensor, "N I"],
        edges: Int[Tensor, "2 E"],
        weights: Float[Tensor, "H E"] | None = None,
    ) -> Float[Tensor, "N HF"]:
        """Return what the second layer reads."""
        hidden = self.first(self.dropout(features), edges, weights)
        return self.dropout(F.elu(hidden))
