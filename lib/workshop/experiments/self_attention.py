"""Self-attention by itself: its projections, and its paths beside recurrence.

Axes: B batch, T positions, C width, V colors or symbols
"""

from itertools import pairwise

import torch
import torch.nn.functional as F

from attnbook.models.devices import use_seed
from attnbook.models.relation_model import (
    PROJECTIONS,
    RELATIONS,
    RelationBatch,
    RelationModel,
    draw_relation,
)
from attnbook.models.sequence_layers import (
    SEQUENCE_LAYERS,
    compute_gradient_norms_at_ends,
)
from attnbook.training.loop import optimize
from workshop.experiments.machine import get_device
from workshop.experiments.record import recorded, sweep

NAMES, COLORS, PROJECTION_WIDTH, BATCH, RATE = 8, 5, 32, 64, 5e-3
PROJECTION_STEPS, PROJECTION_SEEDS = (1000, 4000), range(5)


def train_relation(version: str, relation: str, seed: int) -> dict[str, list[float]]:
    """Train one version on one relation.

    Returns:
        After each of these numbers of steps, the share of wrong answers on
        1,000 new sequences, and the loss of the last batch.
    """
    with use_seed(seed):
        model = RelationModel(NAMES, COLORS, PROJECTION_WIDTH, PROJECTIONS[version])
    model = model.to(get_device())
    rng = torch.Generator().manual_seed(seed)
    held_out = draw(relation, 1000, torch.Generator().manual_seed(1000 + seed))
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    losses: list[float] = []

    def compute_loss(batch: RelationBatch) -> torch.Tensor:
        logits = model(batch.names, batch.colors)
        return F.cross_entropy(logits.flatten(0, 1), batch.answer.flatten())

    found: dict[str, list[float]] = {"errors": [], "losses": []}
    for before, after in pairwise((0, *PROJECTION_STEPS)):
        optimize(
            optimizer,
            (draw(relation, BATCH, rng) for _ in range(after - before)),
            compute_loss,
            callbacks=[lambda _, loss: losses.append(loss)],
        )
        with torch.no_grad():
            logits = model(held_out.names, held_out.colors)
        wrong = (logits.argmax(-1) != held_out.answer).double().mean()
        found["errors"].append(float(wrong))
        found["losses"].append(losses[-1])
    return found


def draw(relation: str, count: int, rng: torch.Generator) -> RelationBatch:
    """Return so many sequences, on the device of the experiments."""
    batch = draw_relation(count, NAMES, COLORS, RELATIONS[relation], rng)
    return batch.to(get_device())


@recorded(
    seeds=PROJECTION_SEEDS,
    names=NAMES,
    colors=COLORS,
    width=PROJECTION_WIDTH,
    steps=list(PROJECTION_STEPS),
)
def projections() -> dict:
    """Record the errors of every version on both relations.

    Each version is trained to find a name's successor in a circle, and to find its
    partner in a pair. Only the first relation has a direction.
    """
    return {
        "runs": sweep(
            train_relation,
            relation=RELATIONS,
            version=PROJECTIONS,
            seed=PROJECTION_SEEDS,
        )
    }


LENGTHS, PATH_SEEDS, WIDTH = (2, 4, 8, 16, 32, 64, 128, 256, 512), range(5), 64


def measure_gradient_norms_at_ends(
    kind: str, length: int, seed: int
) -> tuple[float, float]:
    """Compute the gradient reach for new weights and inputs, in float64."""
    with use_seed(seed):
        model = SEQUENCE_LAYERS[kind](WIDTH).double()
        x = torch.randn(8, length, WIDTH, dtype=torch.float64)
        upstream = torch.randn(8, WIDTH, dtype=torch.float64)
    return compute_gradient_norms_at_ends(
        *(x.to(get_device()) for x in (model, x, upstream))
    )


@recorded(seeds=PATH_SEEDS, lengths=list(LENGTHS), width=WIDTH)
def path_length() -> dict:
    """Record the gradient of the last output at the first and the last position.

    Source: the question is that of Vaswani et al. (2017), section 4 and table 1,
        https://arxiv.org/abs/1706.03762; the experiments are ours.
    """
    results: dict = {"first": {}, "last": {}}
    for kind in SEQUENCE_LAYERS:
        ends = [
            [measure_gradient_norms_at_ends(kind, n, s) for s in PATH_SEEDS]
            for n in LENGTHS
        ]
        results["first"][kind] = [[a for a, _ in row] for row in ends]
        results["last"][kind] = [[b for _, b in row] for row in ends]
    return results
