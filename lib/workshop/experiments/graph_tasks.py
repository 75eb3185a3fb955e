"""When attention over neighbors pays: graphs whose right neighbors are known.

Source: the lookup is that of Brody, Alon and Yahav (2022), section 4.1,
    https://arxiv.org/abs/2105.14491
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.data.graph_tasks import (
    CLASSES,
    NEIGHBORS,
    TOPICS,
    GraphTask,
    draw_lookup,
    draw_noisy_graph,
)
from attnbook.diagnose.neighborhoods import measure_mass
from attnbook.models.devices import use_seed
from attnbook.models.encoder_decoder import count_parameters
from attnbook.models.graph_network import (
    NEIGHBOR_LAYERS,
    GraphNetwork,
    join_selves,
)
from attnbook.training.loop import optimize
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment

SEEDS, RATE = (0, 1, 2), 1e-2
TARGETS, WRONG, NOISE_STEPS = 128, (0, 2, 4, 6), 400
GRAPHS, SIZES, LOOKUP_STEPS = 16, (8, 16), 800
LOOKERS = (("mean", 1), ("GAT", 1), ("GAT", 8), ("GATv2", 1))  # and heads
TESTED = 8  # newly drawn graphs
WIDTH = 32  # of the hidden layer, in all heads together

Draw = Callable[[torch.Generator], GraphTask]


class Trial(NamedTuple):
    """What is trained, and on which graphs.

    Attributes:
        method: "MLP", or the name of a layer.
        heads: of the first layer.
        classes: of the nodes.
        draw: returns a graph.
        steps: how many, each on a new graph.
        own: whether a node is its own neighbor.
    """

    method: str
    heads: int
    classes: int
    draw: Draw
    steps: int
    own: bool

    def join_edges(self, task: GraphTask) -> Int[Tensor, "2 E"]:
        """Return the edges that the first layer reads; an MLP's lead to self.

        The edges of the task come first.
        """
        selves = join_selves(task.edges, len(task.features))
        if self.method == "MLP":
            return selves
        return torch.cat([task.edges, selves], 1) if self.own else task.edges

    def classify(self, model: GraphNetwork, task: GraphTask) -> Float[Tensor, "T K"]:
        """Return the logits; with its edges, the second layer is linear."""
        selves = join_selves(task.edges, len(task.features))
        logits = model(task.features, self.join_edges(task), selves)
        return logits[: len(task.labels)]


def train_network(trial: Trial, seed: int) -> GraphNetwork:
    """Train on a new graph each step; the rate decreases linearly to 0."""
    rng = torch.Generator().manual_seed(seed)
    kind = "mean" if trial.method == "MLP" else trial.method
    inputs, width = trial.draw(rng).features.shape[1], WIDTH // trial.heads
    with use_seed(seed):
        model = GraphNetwork(
            NEIGHBOR_LAYERS[kind],
            inputs,
            trial.classes,
            width,
            trial.heads,
            0.0,
        )

    def compute_loss(task: GraphTask) -> Float[Tensor, ""]:
        return F.cross_entropy(trial.classify(model, task), task.labels)

    optimize(
        torch.optim.Adam(model.parameters(), lr=RATE),
        (trial.draw(rng) for _ in range(trial.steps)),
        compute_loss,
        lambda step: RATE * (1 - step / trial.steps),
    )
    return model.eval()


def score_weights(
    trial: Trial, model: GraphNetwork, task: GraphTask
) -> Float[Tensor, "2 H"]:
    """Return the weight on right neighbors by head, and the chance level.

    Edges from nodes to themselves are left out: the weights of the others are
    divided by their sum.
    """
    edges = trial.join_edges(task)
    weights = model.first.compute_weights(task.features, edges)
    scored = (
        measure_mass(head, task.edges[1], task.right, len(task.labels))
        for head in weights[:, : len(task.right)]
    )
    return torch.stack([x.mean(1) for x in scored], dim=1)


@torch.no_grad()
def score_network(trial: Trial, model: GraphNetwork) -> dict:
    """Return accuracy and weight on right neighbors, on graphs of no training.

    The weight is the mean over heads and nodes; `best_mass` that of the head
    with most.
    """
    rng = torch.Generator().manual_seed(10**6)
    tasks = [trial.draw(rng) for _ in range(TESTED)]
    found = [trial.classify(model, x).argmax(-1) == x.labels for x in tasks]
    result = {"accuracy": float(torch.cat(found).double().mean())}
    if trial.method == "MLP":
        return result
    mass, chance = torch.stack([score_weights(trial, model, x) for x in tasks]).mean(0)
    return result | {
        "mass": float(mass.mean()),
        "best_mass": float(mass.max()),
        "chance": float(chance.mean()),
    }


def measure_trial(trial: Trial, seed: int) -> dict:
    """Train and test one network; return its part of a row."""
    model = train_network(trial, seed)
    return {
        "method": trial.method,
        "heads": trial.heads,
        "seed": seed,
        "parameters": count_parameters(model),
        **score_network(trial, model),
    }


@experiment(on_cpu=True)
@recorded(
    seeds=SEEDS,
    steps=NOISE_STEPS,
    neighbors=NEIGHBORS,
    tested=TESTED * TARGETS,
)
def graph_noise() -> list[dict]:
    """Record the accuracy by the number of wrong neighbors."""
    rows = []
    for asked in (1, TOPICS):
        for wrong in WRONG:
            draw = partial(draw_noisy_graph, TARGETS, asked, wrong)
            for method in ("MLP", *NEIGHBOR_LAYERS):
                trial = Trial(method, 4, CLASSES, draw, NOISE_STEPS, own=True)
                rows += [
                    {"asked": asked, "wrong": wrong} | measure_trial(trial, seed)
                    for seed in SEEDS
                ]
    return rows


@experiment(on_cpu=True)
@recorded(seeds=SEEDS, steps=LOOKUP_STEPS, tested=TESTED * GRAPHS)
def graph_lookup() -> list[dict]:
    """Record the accuracy of lookups: one head and eight, GAT and GATv2."""
    rows = []
    for size in SIZES:
        draw = partial(draw_lookup, GRAPHS, size)
        for method, heads in LOOKERS:
            trial = Trial(method, heads, size, draw, LOOKUP_STEPS, own=False)
            rows += [{"size": size} | measure_trial(trial, seed) for seed in SEEDS]
    return rows
