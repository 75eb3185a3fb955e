"""When attention over neighbors pays: help pages that are linked.

A layer projects the features of each node and returns for each node a weighted
mean of its neighbors' projections, in several heads. The layers differ in the
weights alone: equal for all neighbors, GAT's or GATv2's. On a graph whose only
edges lead from each node to itself, every weight is 1 and all layers are the
same linear layer; a network on such a graph is a multilayer perceptron (MLP).

Source: Veličković et al. (2018), sections 2.1 and 3.3,
    https://arxiv.org/abs/1710.10903, without dropout of the attention weights;
    Brody, Alon and Yahav (2022), section 3.3,
    https://arxiv.org/abs/2105.14491, with one weight matrix for sources and
    targets, so that both kinds have about as many parameters; the pages are those of
    the Debian package libreoffice-help-en-us 7.4.7, see workshop/derive/help_graph.py
    and files/libreoffice/README.md
Axes: N nodes or pages, E edges, I width of the features or words, H heads, F width
    of a head, K classes
"""

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
from attnbook.data import read_file, read_lines
from attnbook.models.devices import use_seed
from attnbook.models.recurrent import count_parameters
from attnbook.training.loop import optimize
from workshop.experiments.record import recorded, sweep


def join_neighbors(links: Int[Tensor, "2 L"], nodes: int) -> Int[Tensor, "2 E"]:
    """Return the edges of links in both directions and of each node to itself, once."""
    check_edges(links, nodes)
    found = torch.cat([links, links.flip(0), join_selves(nodes)], dim=1)
    return found.unique(dim=1)


def join_selves(nodes: int) -> Int[Tensor, "2 N"]:
    return torch.arange(nodes).expand(2, nodes)


class NeighborLayer(nn.Module):
    """Returns weighted means of the neighbors' projections, of a kind in KINDS."""

    def __init__(self, kind: str, inputs: int, width: int, heads: int):
        super().__init__()
        self.kind = kind
        self.weight = nn.Parameter(torch.empty(heads, width, inputs))
        nn.init.normal_(self.weight, std=inputs**-0.5)
        if kind != "mean":
            shape = (heads, 2, width) if kind == "GAT" else (heads, width)
            self.a = nn.Parameter(torch.empty(shape))
            nn.init.normal_(self.a, std=width**-0.5)

    def compute_weights(
        self, features: Float[Tensor, "N I"], edges: Int[Tensor, "2 E"]
    ) -> Float[Tensor, "H E"]:
        """Return the weight of each edge, with the sum 1 into each node."""
        projected = features @ self.weight.mT
        if self.kind == "GAT":
            scores = score_static(projected, edges, self.a)
        elif self.kind == "GATv2":
            scores = score_dynamic(projected, projected, edges, self.a)
        else:
            scores = projected.new_zeros(len(projected), edges.shape[1])
        return softmax_by_target(scores, edges[1], len(features))

    def forward(
        self,
        features: Float[Tensor, "N I"],
        edges: Int[Tensor, "2 E"],
        weights: Float[Tensor, "H E"] | None = None,
    ) -> Float[Tensor, "N HF"]:
        """Return the heads' means, one head after the other; keep the weights."""
        if weights is None:
            weights = self.compute_weights(features, edges)
        self.kept = weights.detach()
        output = average_neighbors(features @ self.weight.mT, edges, weights)
        return output.transpose(0, 1).flatten(1)


class GraphNetwork(nn.Module):
    """Two layers of one kind, with ELU and dropout between them.

    `width` and `heads` are those of the first layer; the second has one head.
    """

    def __init__(
        self, kind: str, inputs: int, classes: int, width: int = 8, heads: int = 8
    ):
        super().__init__()
        self.first = NeighborLayer(kind, inputs, width, heads)
        self.second = NeighborLayer(kind, width * heads, classes, 1)
        self.dropout = nn.Dropout(0.6)

    def forward(
        self,
        features: Float[Tensor, "N I"],
        edges: Int[Tensor, "2 E"],
        weights: tuple[Tensor | None, Tensor | None] | list[Tensor] = (None, None),
    ) -> Float[Tensor, "N K"]:
        hidden = self.first(self.dropout(features), edges, weights[0])
        return self.second(self.dropout(F.elu(hidden)), edges, weights[1])


KINDS = ("mean", "GAT", "GATv2")
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
}


class HelpGraph(NamedTuple):
    """The pages of LibreOffice's help, their words and their links."""

    features: Float[Tensor, "N I"]  # 1 where a page contains a word, and 0
    links: Int[Tensor, "2 E"]  # the page that contains a link, and its target
    labels: Int[Tensor, " N"]  # the number of each page's class, its folder

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of words and of classes."""
        return self.features.shape[1], int(self.labels.max()) + 1

    def draw_edges(self, kind: str, rng: torch.Generator) -> Int[Tensor, "2 E"]:
        """Return the edges of a kind, with one from each node to itself."""
        nodes, links = len(self.labels), self.links
        if kind == "selves":
            return join_selves(nodes)
        if kind == "random":
            links = torch.randint(nodes, links.shape, generator=rng)
        if kind == "same class":
            source, target = self.labels[links]
            links = links[:, source == target]
        return join_neighbors(links, nodes)


def load_help_graph() -> HelpGraph:
    words = read_file("libreoffice/graph_words.txt").decode().splitlines()
    rows = [x.split("\t") for x in read_lines("libreoffice/graph.tsv.bz2")]
    folders = [name.partition("/")[0] for name, _, _ in rows]
    classes = sorted(set(folders))
    features = torch.zeros(len(rows), len(words))
    for row, (_, _, found) in zip(features, rows, strict=True):
        row[[int(x) for x in found.split()]] = 1.0
    pairs = [(i, int(x)) for i, row in enumerate(rows) for x in row[1].split()]
    labels = torch.tensor([classes.index(x) for x in folders])
    return HelpGraph(features, torch.tensor(pairs).T, labels)


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


def score_weights(
    graph: HelpGraph,
    edges: Int[Tensor, "2 E"],
    weights: Float[Tensor, " E"],
    tested: Bool[Tensor, " N"],
) -> Float[Tensor, "2"]:
    """Return the share of weight, and of edges, that leads from the same class.

    The mean is over tested pages with neighbors of their class and of others.
    """
    others = edges[0] != edges[1]
    source, target = edges[:, others]
    same = graph.labels[source] == graph.labels[target]
    mass = measure_mass(weights[others], target, same, len(tested))
    return mass[:, tested & (mass[1] > 0) & (mass[1] < 1)].mean(1)


def measure_seed(graph: HelpGraph, method: str, seed: int) -> dict:
    """Train on 20 pages of each class; return what the record says of the network."""
    rng = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(graph.labels), generator=rng)
    labeled = torch.cat(
        [order[graph.labels[order] == k][:LABELED] for k in graph.labels.unique()]
    )
    kind, joined = METHODS[method]
    edges = graph.draw_edges(joined, rng)
    features = F.normalize(graph.features, dim=1)
    tested = torch.ones(len(graph.labels), dtype=torch.bool)
    tested[labeled] = False
    with use_seed(seed):
        model = GraphNetwork(kind, *graph.sizes)

        def compute_loss(_: int) -> Float[Tensor, ""]:
            logits = model(features, edges)[labeled]
            return F.cross_entropy(logits, graph.labels[labeled])

        adam = torch.optim.Adam(model.parameters(), lr=HELP_RATE, weight_decay=DECAY)
        optimize(adam, range(HELP_STEPS), compute_loss)
    model.eval()

    @torch.no_grad()
    def measure_accuracy(weights=(None, None)) -> float:
        right = model(features, edges, weights).argmax(-1) == graph.labels
        return float(right[tested].double().mean())

    row: dict = {"accuracy": measure_accuracy()}
    if kind != "mean":
        weights = [model.first.kept, model.second.kept]
        scores = [score_weights(graph, edges, x.mean(0), tested) for x in weights]
        row |= {"mass": [float(x[0]) for x in scores], "chance": float(scores[1][1])}
        rng = torch.Generator().manual_seed(seed)
        shuffled = [shuffle_within_targets(x, edges[1], rng) for x in weights]
        row["shuffled"] = measure_accuracy(shuffled)
    return row


@recorded(seeds=HELP_SEEDS)
def help_graph() -> dict:
    """Record accuracy, weight on the same class, and the controls.

    Source: the setting, 20 labeled nodes of each class, is that of Veličković et
        al. (2018), section 3, https://arxiv.org/abs/1710.10903. Departures: another
        graph, the last step instead of early stopping.
    """
    graph = load_help_graph()
    rows = sweep(partial(measure_seed, graph), method=METHODS, seed=HELP_SEEDS)
    parameters = {x: count_parameters(GraphNetwork(x, *graph.sizes)) for x in KINDS}
    edges = join_neighbors(graph.links, len(graph.labels))
    source, target = edges[:, edges[0] < edges[1]]
    same = graph.labels[source] == graph.labels[target]
    counts = {
        "same_class": float(same.double().mean()),
        "tested": len(graph.labels) - graph.sizes[1] * LABELED,
    }
    return {"graph": counts, "parameters": parameters, "networks": rows}
