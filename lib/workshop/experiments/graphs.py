"""When attention over neighbors pays: help pages that are linked.

Source: the pages are those of the Debian package libreoffice-help-en-us 7.4.7, see
    workshop/derive/help_graph.py and files/libreoffice/README.md
Axes: N pages, E edges, I words
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnbook.data import read_file, read_lines
from attnbook.models.devices import use_seed
from attnbook.models.recurrent import count_parameters
from attnbook.training.loop import optimize
from workshop.experiments.graph_network import (
    NEIGHBOR_LAYERS,
    GraphNetwork,
    join_neighbors,
    join_selves,
)
from workshop.experiments.record import recorded, sweep

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


@dataclass(frozen=True)
class HelpGraph:
    """The pages, their words and their links."""

    pages: list[str]  # names such as "scalc/guide/fraction_enter.html"
    words: list[str]  # those that are counted
    features: Float[Tensor, "N I"]  # 1 where a page contains a word, and 0
    links: Int[Tensor, "2 E"]  # the page that contains a link, and its target
    classes: list[str]  # the names of the folders
    labels: Int[Tensor, " N"]  # the number of each page's class


def load_help_graph() -> HelpGraph:
    """Return the pages of LibreOffice's help; a page's class is its folder."""
    words = read_file("libreoffice/graph_words.txt").decode().splitlines()
    rows = [x.split("\t") for x in read_lines("libreoffice/graph.tsv.bz2")]
    pages = [name for name, _, _ in rows]
    folders = [name.partition("/")[0] for name in pages]
    classes = sorted(set(folders))
    features = torch.zeros(len(rows), len(words))
    for row, (_, _, found) in zip(features, rows, strict=True):
        row[[int(x) for x in found.split()]] = 1.0
    pairs = [(i, int(x)) for i, row in enumerate(rows) for x in row[1].split()]
    labels = torch.tensor([classes.index(x) for x in folders])
    return HelpGraph(pages, words, features, torch.tensor(pairs).T, classes, labels)


def draw_labeled(
    labels: Int[Tensor, " N"], count: int, rng: torch.Generator
) -> Int[Tensor, " _"]:
    """Return `count` random nodes of each class: those to train on."""
    order = torch.randperm(len(labels), generator=rng)
    return torch.cat([order[labels[order] == k][:count] for k in labels.unique()])


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
        return join_selves(links, nodes)
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
