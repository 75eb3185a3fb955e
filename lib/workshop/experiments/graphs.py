"""When attention over neighbors pays: drawn lookups, and linked help pages.

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
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnbook.attention.graph import (
    average_neighbors,
    check_edges,
    score_dynamic,
    score_static,
    softmax_by_target,
)
from attnbook.data.graphs import (
    GraphTask,
    HelpGraph,
    draw_labeled,
    draw_lookup,
    load_help_graph,
)
from attnbook.models.devices import use_seed
from attnbook.models.recurrent import count_parameters
from attnbook.training.loop import optimize
from workshop.experiments.record import recorded, sweep


def join_neighbors(links: Int[Tensor, "2 L"], nodes: int) -> Int[Tensor, "2 E"]:
    """Return the edges of links in both directions and of each node to itself.

    Each edge is there once.
    """
    check_edges(links, nodes)
    found = torch.cat([links, links.flip(0), join_selves(nodes)], dim=1)
    return found.unique(dim=1)


def join_selves(nodes: int) -> Int[Tensor, "2 N"]:
    """Return the edges of each node to itself."""
    return torch.arange(nodes).expand(2, nodes)


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
        second_edges: Int[Tensor, "2 E2"] | None = None,
        weights: Sequence[Tensor | None] = (None, None),
    ) -> Float[Tensor, "N K"]:
        check_edges(edges, len(features))
        hidden = self.encode(features, edges, weights[0])
        second = edges if second_edges is None else second_edges
        return self.second(hidden, second, weights[1])

    def encode(
        self,
        features: Float[Tensor, "N I"],
        edges: Int[Tensor, "2 E"],
        weights: Float[Tensor, "H E"] | None = None,
    ) -> Float[Tensor, "N HF"]:
        """Return what the second layer reads."""
        hidden = self.first(self.dropout(features), edges, weights)
        return self.dropout(F.elu(hidden))


TASK_SEEDS, TASK_RATE = (0, 1, 2), 1e-2
GRAPHS, SIZES, LOOKUP_STEPS = 16, (8, 16), 800
LOOKERS = (("mean", 1), ("GAT", 1), ("GAT", 8), ("GATv2", 1))  # and heads
TESTED = 8  # newly drawn graphs
WIDTH = 32  # of the hidden layer, in all heads together


def classify(model: GraphNetwork, task: GraphTask) -> Float[Tensor, "T K"]:
    """Return the logits; with its edges, the second layer is linear."""
    selves = join_selves(len(task.features))
    return model(task.features, task.edges, selves)[: len(task.labels)]


def train_lookup(size: int, method: str, heads: int, seed: int) -> GraphNetwork:
    """Train on a new graph each step; the rate decreases linearly to 0."""
    rng = torch.Generator().manual_seed(seed)
    inputs = draw_lookup(GRAPHS, size, rng).features.shape[1]
    with use_seed(seed):
        layer = NEIGHBOR_LAYERS[method]
        model = GraphNetwork(layer, inputs, size, WIDTH // heads, heads, 0.0)
    optimize(
        torch.optim.Adam(model.parameters(), lr=TASK_RATE),
        (draw_lookup(GRAPHS, size, rng) for _ in range(LOOKUP_STEPS)),
        lambda task: F.cross_entropy(classify(model, task), task.labels),
        lambda step: TASK_RATE * (1 - step / LOOKUP_STEPS),
    )
    return model.eval()


@torch.no_grad()
def score_lookup(model: GraphNetwork, size: int) -> dict:
    """Return accuracy and weight on right neighbors, on graphs of no training."""
    rng = torch.Generator().manual_seed(10**6)
    tasks = [draw_lookup(GRAPHS, size, rng) for _ in range(TESTED)]
    found = [classify(model, x).argmax(-1) == x.labels for x in tasks]
    masses = []
    for task in tasks:
        weights = model.first.compute_weights(task.features, task.edges)
        given = task.edges[1], task.right, len(task.labels)
        shares = torch.stack([measure_mass(head, *given)[0] for head in weights])
        masses.append(float(shares.mean()))
    return {
        "accuracy": float(torch.cat(found).double().mean()),
        "mass": sum(masses) / len(masses),
    }


@recorded(seeds=TASK_SEEDS)
def graph_lookup() -> list[dict]:
    """Record the accuracy of lookups: one head and eight, GAT and GATv2.

    Source: the lookup is that of Brody, Alon and Yahav (2022), section 4.1,
        https://arxiv.org/abs/2105.14491
    """
    rows = []
    for size in SIZES:
        for method, heads in LOOKERS:
            for seed in TASK_SEEDS:
                row = {"size": size, "method": method, "heads": heads, "seed": seed}
                rows.append(row | score_lookup(train_lookup(**row), size))
    return rows


HELP_SEEDS = (0, 1, 2, 3, 4)
LABELED, HELP_STEPS, HELP_RATE, DECAY = 20, 80, 5e-3, 5e-4
# Name -> (layer, edges).
METHODS = {
    "MLP": ("mean", "selves"),
    "mean": ("mean", "links"),
    "GAT": ("GAT", "links"),
    "GATv2": ("GATv2", "links"),
    "mean, links of the same class": ("mean", "same class"),
    "mean, random links": ("mean", "random"),
    "GAT, random links": ("GAT", "random"),
}


class Trained(NamedTuple):
    """A trained network and what it was trained on."""

    model: GraphNetwork
    features: Float[Tensor, "N I"]
    edges: Int[Tensor, "2 E"]
    labels: Int[Tensor, " N"]
    tested: Bool[Tensor, " N"]
    mixed: Bool[Tensor, " N"]


def make_edges(graph: HelpGraph, kind: str, rng: torch.Generator) -> Int[Tensor, "2 E"]:
    """Return the edges of a kind, with one from each node to itself."""
    nodes, links = len(graph.pages), graph.links
    if kind == "selves":
        return join_selves(nodes)
    if kind == "random":
        links = torch.randint(nodes, links.shape, generator=rng)
    if kind == "same class":
        source, target = graph.labels[links]
        links = links[:, source == target]
    return join_neighbors(links, nodes)


def measure_mass(
    weights: Float[Tensor, " E"],
    target: Int[Tensor, " E"],
    right: Bool[Tensor, " E"],
    nodes: int,
) -> Float[Tensor, "2 N"]:
    """Return each node's share of weight on right edges, and of edges; NaN if none."""
    rows = torch.stack([weights, torch.ones_like(weights)])
    whole = rows.new_zeros(2, nodes).index_add(1, target, rows)
    part = rows.new_zeros(2, nodes).index_add(1, target, rows * right)
    return part / whole


def shuffle_within_targets(
    weights: Float[Tensor, "*H E"], target: Int[Tensor, " E"], rng: torch.Generator
) -> Float[Tensor, "*H E"]:
    """Return the weights in a random order, the same for all heads, by neighborhood."""
    shuffled = torch.rand(len(target), generator=rng).argsort()
    shuffled = shuffled[target[shuffled].argsort(stable=True)]
    result = torch.empty_like(weights)
    result[..., target.argsort(stable=True)] = weights[..., shuffled]
    return result


def find_mixed(graph: HelpGraph) -> Bool[Tensor, " N"]:
    """Return which pages have linked pages of their class and of others."""
    source, target = join_neighbors(graph.links, len(graph.pages))
    source, target = source[source != target], target[source != target]
    same = graph.labels[source] == graph.labels[target]
    share = measure_mass(same + 1.0, target, same, len(graph.pages))[1]
    return (share > 0) & (share < 1)


def train_on_pages(graph: HelpGraph, method: str, seed: int) -> Trained:
    """Train on 20 labeled pages of each class, the same for all methods."""
    rng = torch.Generator().manual_seed(seed)
    labeled = draw_labeled(graph.labels, LABELED, rng)
    layer, kind = METHODS[method]
    edges = make_edges(graph, kind, rng)
    features = F.normalize(graph.features, dim=1)
    tested = torch.ones(len(graph.pages), dtype=torch.bool)
    tested[labeled] = False
    with use_seed(seed):
        model = GraphNetwork(
            NEIGHBOR_LAYERS[layer], len(graph.words), len(graph.classes)
        )

        def compute_loss(_: int) -> Float[Tensor, ""]:
            logits = model(features, edges)[labeled]
            return F.cross_entropy(logits, graph.labels[labeled])

        adam = torch.optim.Adam(model.parameters(), lr=HELP_RATE, weight_decay=DECAY)
        optimize(adam, range(HELP_STEPS), compute_loss)
    mixed = find_mixed(graph)
    return Trained(model.eval(), features, edges, graph.labels, tested, mixed)


@torch.no_grad()
def get_accuracy(run: Trained, weights=(None, None)) -> float:
    """Return the accuracy on all pages that were tested."""
    logits = run.model(run.features, run.edges, weights=weights)
    right = (logits.argmax(-1) == run.labels).double()
    return float(right[run.tested].mean())


@torch.no_grad()
def get_weights(run: Trained) -> list[Float[Tensor, "H E"]]:
    """Return the attention weights of both layers."""
    first, second = run.model.first, run.model.second
    hidden = run.model.encode(run.features, run.edges)
    return [
        first.compute_weights(run.features, run.edges),
        second.compute_weights(hidden, run.edges),
    ]


def score_page_weights(run: Trained) -> dict:
    """Return the share of weight on neighbors of the same class, by layer."""
    source, target = run.edges
    others = source != target
    same = (run.labels[source] == run.labels[target])[others]
    pages = run.tested & run.mixed
    found: dict = {"mass": []}
    for weights in get_weights(run):
        mean = weights.mean(0)[others]
        mass = measure_mass(mean, target[others], same, len(pages))[:, pages]
        found["mass"].append(float(mass[0].mean()))
        found["chance"] = float(mass[1].mean())
    return found


def measure_seed(graph: HelpGraph, method: str, seed: int) -> dict:
    """Return what the record says of one network."""
    run = train_on_pages(graph, method, seed)
    row = {"accuracy": get_accuracy(run)}
    if METHODS[method][0] != "mean" and METHODS[method][1] == "links":
        row |= score_page_weights(run)
        rng, target = torch.Generator().manual_seed(seed), run.edges[1]
        shuffled = [shuffle_within_targets(x, target, rng) for x in get_weights(run)]
        row["shuffled"] = get_accuracy(run, shuffled)
    return row


def count_parts(graph: HelpGraph) -> dict:
    """Return the share of linked pairs of one class, and how many pages are tested."""
    edges = join_neighbors(graph.links, len(graph.pages))
    source, target = edges[:, edges[0] < edges[1]]
    same = graph.labels[source] == graph.labels[target]
    return {
        "same_class": float(same.double().mean()),
        "tested": len(graph.pages) - len(graph.classes) * LABELED,
    }


@recorded(seeds=HELP_SEEDS)
def help_graph() -> dict:
    """Record accuracy, weight on the same class, and the controls.

    Source: the setting, 20 labeled nodes of each class, is that of Veličković et
        al. (2018), section 3, https://arxiv.org/abs/1710.10903. Departures: another
        graph, the last step instead of early stopping.
    """
    graph = load_help_graph()
    rows = sweep(partial(measure_seed, graph), method=METHODS, seed=HELP_SEEDS)
    parameters = {
        name: count_parameters(
            GraphNetwork(layer, len(graph.words), len(graph.classes))
        )
        for name, layer in NEIGHBOR_LAYERS.items()
    }
    return {"graph": count_parts(graph), "parameters": parameters, "networks": rows}
