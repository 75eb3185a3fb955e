"""Exercise: find out what is wrong with a layer of graph attention, by tests.

Source: the faults are those of the chapter's section on graphs and of its
    pitfalls
Axes: N nodes, E edges, I width of the features, F width of the output
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.attention.graph import (
    average_neighbors,
    check_edges,
    score_static,
    softmax_by_target,
)
from attnbook.exercises.edit import renumber
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.faults import (
    NEVER_FOUND,
    FaultyModule,
    describe_fault,
    differ,
    list_number_mistakes,
)
from attnbook.exercises.inputs import draw_normal, shuffle_cases

# What can be built in, and the number of its fault.
FAULTS = {
    "right": 0,
    "softmax over the edges out of a source": 1,
    "softmax over all edges": 2,
    "edges reversed": 3,
    "an edge from every node to itself": 4,
    "equal weights": 5,
    "own features without incoming edges": 6,
}


@dataclass(eq=False)
class GraphLayer(FaultyModule):
    """Graph attention, with or without a fault.

    Called with features (N, I) and edges (2, E), it returns (N, F): for each
    node the mean of W h of the sources of its incoming edges, weighted by a
    softmax over these edges; zeros without incoming edges.

    Attributes:
        built_in: one of `FAULTS`.
        numbers: W (F, I) and a (2, F).
    """

    def __call__(
        self, features: Float[Tensor, "N I"], edges: Int[Tensor, "2 E"]
    ) -> Float[Tensor, "N F"]:
        """Attend to the neighbors, as far as the fault allows.

        Raises:
            ValueError: if an edge names a node that is not there.
        """
        check_edges(edges, len(features))
        edges = self.change_edges(edges, len(features))
        projected = features @ self.numbers[0].T
        scores = score_static(projected, edges, self.numbers[1])
        if self.built_in == "equal weights":
            scores = torch.zeros_like(scores)
        groups = self.group_edges(edges)
        weights = softmax_by_target(scores, groups, len(features))
        output = average_neighbors(projected, edges, weights)
        if self.built_in == "own features without incoming edges":
            reached = torch.isin(torch.arange(len(features)), edges[1])
            output = torch.where(reached[:, None], output, projected)
        return output

    def change_edges(self, edges: Tensor, nodes: int) -> Tensor:
        """Return the edges along which the layer attends."""
        if self.built_in == "edges reversed":
            return edges.flip(0)
        if self.built_in == "an edge from every node to itself":
            return torch.cat([edges, torch.arange(nodes).expand(2, -1)], 1)
        return edges

    def group_edges(self, edges: Tensor) -> Tensor:
        """Return a number for each edge: one softmax for each number."""
        if self.built_in == "softmax over the edges out of a source":
            return edges[0]
        if self.built_in == "softmax over all edges":
            return torch.zeros_like(edges[0])
        return edges[1]


def graph_fault(
    layer: Callable, features: Float[Tensor, "N I"], edges: Int[Tensor, "2 E"]
) -> int:
    """Return the number of the fault of graph attention, 0 if there is none.

    1: the softmax runs over the edges out of a source. 2: it runs over all
    edges of the graph. 3: the edges are reversed. 4: every node also has an
    edge to itself. 5: all edges into a node have the same weight. 6: a node
    without incoming edges keeps its own W h instead of zeros.

    Args:
        layer: from features (N, I) and edges (2, E), from sources to targets,
            to the outputs (N, F) of graph attention.
        features: an example.
        edges: an example.
    """
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(4, features.shape[1], generator=rng)

    def run(*pairs: tuple[int, int]) -> Tensor:
        made = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)
        return layer(x, made.T)

    alone, one = run(), run((0, 2))
    if alone.any():  # W h of each node
        return 4 if differ(one[2], alone[0]) else 6
    if not one[2].any():
        return 3
    if differ(run((0, 2), (1, 3))[2], one[2]):
        return 2
    total = one[2] + run((1, 2))[2] + run((3, 2))[2]
    together = run((0, 2), (1, 2), (3, 2))[2]
    if not differ(together, total):
        return 1
    return 0 if differ(3 * together, total) else 5


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """A right layer first; two given one edge, and the others a ring."""

    def case(built_in: str, nodes: int, wide: int) -> Case:
        weight, a = draw_normal(rng, 3, wide), draw_normal(rng, 2, 3)
        numbers = weight / wide**0.5, a / 2  # no weight is close to 0 or 1
        after = torch.arange(1, nodes)
        edges = torch.stack([after - 1, after])
        if nodes > 2:
            edges = torch.cat([edges, torch.tensor([[nodes - 1], [0]])], 1)
        given = "one edge" if nodes == 2 else f"a ring of {nodes} nodes"
        tries = f"with {describe_fault(built_in, FAULTS)}, given {given}"
        layer = GraphLayer(built_in, numbers)
        return Case(tries, (layer, draw_normal(rng, nodes, wide), edges))

    kinds = [*FAULTS]
    few = [case(kinds[number], 2, 4) for number in (0, 4)]
    ring = [case(kinds[number], 5, 3) for number in (0, 1, 2, 3, 5, 6)]
    return shuffle_cases((*few, *ring), rng)


def find_fault_of_example(layer: Callable, features: Tensor, edges: Tensor) -> int:
    """Return a fault from which nodes of the example have an output."""
    reached = layer(features, edges).any(-1)
    if torch.equal(reached, torch.isin(torch.arange(len(reached)), edges[1])):
        return 0
    return 4 if reached.all() else 3


check_graph_fault = Exercise(
    title="the fault of graph attention",
    stars=3,
    minutes=25,
    section="Graphs: attention over neighbors",
    solution=graph_fault,
    returns=("fault",),
    draw=draw,
    key_line="if differ(run((0, 2), (1, 3))[2], one[2]):",
    mistakes=(
        Mistake(
            "example-only",
            "only the example tried",
            "it tries only the given example. Where each node has at most one "
            "incoming and one outgoing edge, a softmax over the wrong edges "
            "and equal weights change nothing. Make a graph of your own",
            find_fault_of_example,
        ),
        Mistake(
            "one-incoming-edge",
            "only nodes with one incoming edge",
            "it tries only nodes with one incoming edge, whose weight is 1 "
            "whatever the scores are. Let two edges lead to one node",
            renumber(graph_fault, {1: 0, 5: 0}),
        ),
        Mistake(
            "one-target",
            "only one node with incoming edges",
            "it does not notice a softmax over all edges. As long as all edges "
            "lead to one node, this softmax is the right one; let edges lead "
            "to two nodes",
            "if differ(run((0, 2), (1, 3))[2], one[2]) → if False",
        ),
        Mistake(
            "equal-weights-not-tested",
            "equal weights not noticed",
            "it does not notice equal weights: compare the output of several "
            "edges with the mean of the outputs of each",
            "0 if differ(3 * together, total) else 5 → 0",
        ),
        Mistake(
            "sum-not-tested",
            "softmax over sources not noticed",
            "it does not notice a softmax over the edges out of a source. With "
            "one edge out of each source, all weights are 1, and edges into a "
            "node give the sum of what each gives alone",
            "if not differ(together, total) → if False",
        ),
        Mistake(
            "direction-not-tested",
            "direction not tested",
            "it does not notice reversed edges: with a single edge, only the "
            "target has an output",
            renumber(graph_fault, {3: 0}),
        ),
        Mistake(
            "no-empty-graph",
            "nodes without incoming edges not looked at",
            "it does not look at nodes without incoming edges. Their output "
            "should be zeros",
            renumber(graph_fault, {4: 0, 6: 0}),
        ),
        Mistake(
            "own-features-as-loops",
            "own features taken for an edge",
            "it takes every output of a node without incoming edges for an "
            "edge of the node to itself. Such an edge also changes the output "
            "of a node with an incoming edge",
            "4 if differ(one[2], alone[0]) else 6 → 4",
        ),
        Mistake(
            "groups-swapped",
            "two wrong softmaxes confused",
            "it confuses faults 1 and 2: with two edges into different nodes "
            "from different sources, only a softmax over all edges makes the "
            "outputs smaller",
            renumber(graph_fault, {1: 2, 2: 1}),
        ),
        NEVER_FOUND,
        *list_number_mistakes(graph_fault),
    ),
)
