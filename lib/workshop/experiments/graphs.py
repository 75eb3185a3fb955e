"""When attention over neighbors pays: drawn lookups, and linked help pages.

Axes: N pages, E edges
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnbook.data.graphs import (
    GraphTask,
    HelpGraph,
    draw_labeled,
    draw_lookup,
    load_help_graph,
)
from attnbook.diagnose.neighborhoods import measure_mass, shuffle_within_targets
from attnbook.models.devices import use_seed
from attnbook.models.encoder_decoder import count_parameters
from attnbook.models.graph_network import (
    NEIGHBOR_LAYERS,
    GraphNetwork,
    join_neighbors,
    join_selves,
)
from attnbook.training.loop import optimize
from workshop.experiments.record import recorded, sweep

TASK_SEEDS, TASK_RATE = (0, 1, 2), 1e-2
GRAPHS, SIZES, LOOKUP_STEPS = 16, (8, 16), 800
LOOKERS = (("mean", 1), ("GAT", 1), ("GAT", 8), ("GATv2", 1))  # and heads
TESTED = 8  # newly drawn graphs
WIDTH = 32  # of the hidden layer, in all heads together

Draw = Callable[[torch.Generator], GraphTask]


class Trial(NamedTuple):
    """What is trained, and on which graphs.

    Attributes:
        method: the name of a layer.
        heads: of the first layer.
        classes: of the nodes.
        draw: returns a graph.
        steps: how many, each on a new graph.
    """

    method: str
    heads: int
    classes: int
    draw: Draw
    steps: int

    def classify(self, model: GraphNetwork, task: GraphTask) -> Float[Tensor, "T K"]:
        """Return the logits; with its edges, the second layer is linear."""
        selves = join_selves(task.edges, len(task.features))
        logits = model(task.features, task.edges, selves)
        return logits[: len(task.labels)]


def train_trial(trial: Trial, seed: int) -> GraphNetwork:
    """Train on a new graph each step; the rate decreases linearly to 0."""
    rng = torch.Generator().manual_seed(seed)
    inputs, width = trial.draw(rng).features.shape[1], WIDTH // trial.heads
    with use_seed(seed):
        model = GraphNetwork(
            NEIGHBOR_LAYERS[trial.method],
            inputs,
            trial.classes,
            width,
            trial.heads,
            0.0,
        )

    def compute_loss(task: GraphTask) -> Float[Tensor, ""]:
        return F.cross_entropy(trial.classify(model, task), task.labels)

    optimize(
        torch.optim.Adam(model.parameters(), lr=TASK_RATE),
        (trial.draw(rng) for _ in range(trial.steps)),
        compute_loss,
        lambda step: TASK_RATE * (1 - step / trial.steps),
    )
    return model.eval()


def score_trial_weights(
    trial: Trial, model: GraphNetwork, task: GraphTask
) -> Float[Tensor, "2 H"]:
    """Return the weight on right neighbors by head, and the chance level."""
    weights = model.first.compute_weights(task.features, task.edges)
    scored = (
        measure_mass(head, task.edges[1], task.right, len(task.labels))
        for head in weights
    )
    return torch.stack([x.mean(1) for x in scored], dim=1)


@torch.no_grad()
def score_trial(trial: Trial, model: GraphNetwork) -> dict:
    """Return accuracy and weight on right neighbors, on graphs of no training.

    The weight is the mean over heads and nodes; `best_mass` that of the head
    with most.
    """
    rng = torch.Generator().manual_seed(10**6)
    tasks = [trial.draw(rng) for _ in range(TESTED)]
    found = [trial.classify(model, x).argmax(-1) == x.labels for x in tasks]
    result = {"accuracy": float(torch.cat(found).double().mean())}
    mass, chance = torch.stack(
        [score_trial_weights(trial, model, x) for x in tasks]
    ).mean(0)
    return result | {
        "mass": float(mass.mean()),
        "best_mass": float(mass.max()),
        "chance": float(chance.mean()),
    }


def measure_trial(trial: Trial, seed: int) -> dict:
    """Train and test one network; return its part of a row."""
    model = train_trial(trial, seed)
    return {
        "method": trial.method,
        "heads": trial.heads,
        "seed": seed,
        "parameters": count_parameters(model),
        **score_trial(trial, model),
    }


@recorded(on_cpu=True, seeds=TASK_SEEDS, steps=LOOKUP_STEPS, tested=TESTED * GRAPHS)
def graph_lookup() -> list[dict]:
    """Record the accuracy of lookups: one head and eight, GAT and GATv2.

    Source: the lookup is that of Brody, Alon and Yahav (2022), section 4.1,
        https://arxiv.org/abs/2105.14491
    """
    rows = []
    for size in SIZES:
        draw = partial(draw_lookup, GRAPHS, size)
        for method, heads in LOOKERS:
            trial = Trial(method, heads, size, draw, LOOKUP_STEPS)
            rows += [{"size": size} | measure_trial(trial, seed) for seed in TASK_SEEDS]
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
    """A trained network and what it was trained on.

    Attributes:
        model: the network.
        features: (N, I), of length 1 each.
        edges: (2, E), with one from each node to itself.
        labels: (N,).
        tested: (N,) whether a node has neither been labeled nor left out.
        mixed: (N,) whether links lead to pages of its class and of others.
    """

    model: GraphNetwork
    features: Float[Tensor, "N I"]
    edges: Int[Tensor, "2 E"]
    labels: Int[Tensor, " N"]
    tested: Bool[Tensor, " N"]
    mixed: Bool[Tensor, " N"]


def make_edges(graph: HelpGraph, kind: str, rng: torch.Generator) -> Int[Tensor, "2 E"]:
    """Return the edges of a kind, with one from each node to itself.

    Those of the same class need the labels of all pages: a limit that no model
    can use, which says what a perfect choice of neighbors would give. Random
    links are as many pairs of pages as there are links.
    """
    nodes, links = len(graph.pages), graph.links
    if kind == "selves":
        return join_selves(links, nodes)
    if kind == "random":
        links = torch.randint(nodes, links.shape, generator=rng)
    if kind == "same class":
        source, target = graph.labels[links]
        links = links[:, source == target]
    return join_neighbors(links, nodes)


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
def get_accuracy(run: Trained, weights=(None, None)) -> dict[str, float]:
    """Return the accuracy on all pages that were tested, and on mixed ones."""
    logits = run.model(run.features, run.edges, weights=weights)
    right = (logits.argmax(-1) == run.labels).double()
    return {
        "accuracy": float(right[run.tested].mean()),
        "mixed_accuracy": float(right[run.tested & run.mixed].mean()),
    }


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
    """Return the share of weight on neighbors of the same class, by layer.

    Edges from a page to itself are left out; the mean is over mixed pages that
    were not labeled, and over heads. The chance level is the share of
    neighbors.
    """
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


def change_weights(run: Trained, seed: int) -> dict[str, float]:
    """Return the accuracy with weights shuffled in each neighborhood, or equal.

    Nothing is trained again.
    """
    rng, target = torch.Generator().manual_seed(seed), run.edges[1]
    weights = get_weights(run)
    shuffled = [shuffle_within_targets(x, target, rng) for x in weights]
    equal = [1 / target.bincount()[target].expand(x.shape) for x in weights]
    return {
        "shuffled": get_accuracy(run, shuffled)["accuracy"],
        "equal": get_accuracy(run, equal)["accuracy"],
    }


def measure_seed(graph: HelpGraph, method: str, seed: int) -> dict:
    """Return what the record says of one network."""
    run = train_on_pages(graph, method, seed)
    row = get_accuracy(run)
    if METHODS[method][0] != "mean" and METHODS[method][1] == "links":
        row |= score_page_weights(run) | change_weights(run, seed)
    return row


def count_parts(graph: HelpGraph) -> dict:
    """Return the sizes of the graph, and the accuracy of the largest class."""
    counts = graph.labels.bincount()
    edges = join_neighbors(graph.links, len(graph.pages))
    source, target = edges[:, edges[0] < edges[1]]
    same = graph.labels[source] == graph.labels[target]
    untested = len(graph.classes) * LABELED
    tested = len(graph.pages) - untested
    return {
        "pages": len(graph.pages),
        "links": graph.links.shape[1],
        "pairs": len(source),
        "same_class": float(same.double().mean()),
        "classes": dict(zip(graph.classes, counts.tolist(), strict=True)),
        "mixed": int(find_mixed(graph).sum()),
        "tested": tested,
        "largest_class": (int(counts.max()) - LABELED) / tested,
    }


@recorded(on_cpu=True, seeds=HELP_SEEDS, labeled=LABELED, steps=HELP_STEPS)
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
