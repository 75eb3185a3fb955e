"""What the projections of self-attention are for: five versions, two tasks.

Each version is trained to find a name's successor in a circle, and to find its
partner in a pair. Only the first relation has a direction.

Axes: B batch, T positions, one for each name, C width, V colors
"""

from collections.abc import Sequence
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
from attnbook.training.loop import optimize
from workshop.experiments.device import get_device
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment

NAMES, COLORS, WIDTH, BATCH, RATE = 8, 5, 32, 64, 5e-3
STEPS, SEEDS = (1000, 4000), range(5)


def train_relation(
    version: str, relation: str, seed: int, steps: Sequence[int] = STEPS
) -> dict[str, list[float]]:
    """Train one version on one relation.

    Args:
        version: of the layer, in `PROJECTIONS`.
        relation: in `RELATIONS`.
        seed: of weights and data.
        steps: after how many the model is tested.

    Returns:
        After each of these numbers of steps, the share of wrong answers on
        1,000 new sequences, and the loss of the last batch.
    """
    with use_seed(seed):
        model = RelationModel(NAMES, COLORS, WIDTH, PROJECTIONS[version])
    model = model.to(get_device())
    rng = torch.Generator().manual_seed(seed)
    held_out = draw(relation, 1000, torch.Generator().manual_seed(1000 + seed))
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    losses: list[float] = []

    def compute_loss(batch: RelationBatch) -> torch.Tensor:
        logits = model(batch.names, batch.colors)
        return F.cross_entropy(logits.flatten(0, 1), batch.answer.flatten())

    found: dict[str, list[float]] = {"errors": [], "losses": []}
    for before, after in pairwise((0, *steps)):
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


@experiment()
@recorded(seeds=SEEDS, names=NAMES, colors=COLORS, width=WIDTH, steps=list(STEPS))
def projections() -> dict:
    """Record the errors of every version on both relations."""
    runs = [
        {"relation": relation, "version": version, "seed": seed}
        | train_relation(version, relation, seed)
        for relation in RELATIONS
        for version in PROJECTIONS
        for seed in SEEDS
    ]
    return {"runs": runs}
