"""Self-attention by itself: its projections, and its paths beside recurrence.

Axes: B batch, T positions, C width, V colors or symbols
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

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


RECALLED, RECALL_SEEDS, RECALL_STEPS, SYMBOLS = (16, 64, 256), (0, 1, 2), 300, 16
MORE_STEPS = 1200


TRAINED = (
    "gru",
    "lstm",
    "lstm, forget bias 1",
    "lstm, forget bias 3",
    "lstm, forget bias 5",
    "attention",
)


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


class RecallModel(nn.Module):
    """Name the first symbol, which is marked, from the last position."""

    def __init__(self, kind: str):
        super().__init__()
        self.embed = nn.Embedding(2 * SYMBOLS, WIDTH)
        self.layer = SEQUENCE_LAYERS[kind](WIDTH)
        self.readout = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, text: Int[Tensor, "B T"]) -> Float[Tensor, "B V"]:
        """Return logits of the symbol at the first place."""
        first = torch.arange(text.shape[1], device=text.device) == 0
        return self.readout(self.layer(self.embed(text + SYMBOLS * first))[0][:, -1])


def train_recall(kind: str, length: int, seed: int, steps: int) -> dict:
    """Train to name the first symbol; return the share of wrong answers."""
    with use_seed(seed):
        model = RecallModel(kind).to(get_device())
    rng = torch.Generator().manual_seed(seed)
    losses: list[float] = []

    def draw(count: int) -> Tensor:
        symbols = torch.randint(SYMBOLS, (count, length), generator=rng)
        return symbols.to(get_device())

    optimize(
        torch.optim.Adam(model.parameters(), lr=3e-3),
        (draw(32) for _ in range(steps)),
        lambda text: F.cross_entropy(model(text), text[:, 0]),
        clip=1.0,
        callbacks=[lambda _, loss: losses.append(loss)],
    )
    text = draw(512)
    with torch.no_grad():
        wrong = (model(text).argmax(-1) != text[:, 0]).double().mean()
    return {"error": float(wrong), "loss": losses[-1]}


@recorded(seeds=PATH_SEEDS, lengths=list(LENGTHS), recalled=list(RECALLED), width=WIDTH)
def path_length() -> dict:
    """Record the gradient at the first symbol, and what can be learned.

    Source: the question is that of Vaswani et al. (2017), section 4 and table 1,
        https://arxiv.org/abs/1706.03762; the experiments are ours.
    """
    results: dict = {"first": {}, "last": {}, "recall": {}}
    for kind in SEQUENCE_LAYERS:
        ends = [
            [measure_gradient_norms_at_ends(kind, n, s) for s in PATH_SEEDS]
            for n in LENGTHS
        ]
        results["first"][kind] = [[a for a, _ in row] for row in ends]
        results["last"][kind] = [[b for _, b in row] for row in ends]
    for kind in TRAINED:
        results["recall"][kind] = [
            [train_recall(kind, n, s, RECALL_STEPS)["error"] for s in RECALL_SEEDS]
            for n in RECALLED
        ]
    return results


@recorded(seeds=RECALL_SEEDS, length=max(RECALLED), steps=MORE_STEPS, width=WIDTH)
def longer_recall() -> dict:
    """Record what two LSTMs learn at the largest length in more steps."""
    return {
        kind: [
            train_recall(kind, max(RECALLED), seed, MORE_STEPS)["error"]
            for seed in RECALL_SEEDS
        ]
        for kind in ("lstm", "lstm, forget bias 5")
    }
