"""A question about one of four emoji: gated cross-attention against its truth.

The answer is the color of the frame around the emoji that the question names.
The convolutional encoder of `emoji_retrieval` is frozen, the text model starts
from its words' embeddings, and a gated cross-attention joins both.

Source: Alayrac et al. (2022), section 2.2, https://arxiv.org/abs/2204.14198.
    Departures: see `attnbook.models.image_text`.
Axes: B grids, S positions of the feature map
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.data.emoji import (
    ARTISTS,
    CELL,
    COLORS,
    Grids,
    draw_grids,
    index_words,
    mark_cell,
)
from attnbook.models.devices import use_seed
from attnbook.models.encoder_decoder import count_parameters
from attnbook.models.image_text import (
    STRIDE,
    ContrastiveModel,
    GridReader,
    UniformAttention,
)
from attnbook.training.loop import compute_rate_factor, optimize
from workshop.experiments.emoji_retrieval import (
    load_artists,
    train_model,
)
from workshop.experiments.record import record_results
from workshop.experiments.registry import experiment

SEEDS = (0, 1, 2)
HELD_OUT = "noto"
DRAWN, STEPS, BATCH, TESTED = 6000, 1500, 64, 1000
RATE, WARMUP, CLIP = 3e-3, 0.05, 1.0
EVERY = 50  # steps between two notes of the gate
SHOWN = 4  # grids whose weights are recorded
READERS = {
    "attention": MultiHeadAttention,
    "uniform weights": UniformAttention,
    "gate fixed at 0": MultiHeadAttention,
}


def make_reader(kind: str, model: ContrastiveModel, seed: int) -> GridReader:
    """Return a new reader of a trained model's feature map.

    Args:
        kind: one of `READERS`.
        model: whose image encoder is frozen, and whose words are copied.
        seed: of the new layers.
    """
    encoder, classes = model.encoder, len(COLORS)
    with use_seed(seed):
        reader = GridReader(encoder, model.embedding, classes, READERS[kind])
    if kind == "gate fixed at 0":
        reader.cross.gate.requires_grad_(False)
    return reader


@torch.no_grad()
def draw_data(
    model: ContrastiveModel, artists: list[str], count: int, seed: int
) -> tuple[Tensor, Grids]:
    """Return the vectors of grids, which no training changes, and the grids."""
    rng = torch.Generator().manual_seed(seed)
    grids = draw_grids(count, load_artists(artists), rng)
    reader = make_reader("attention", model, seed)
    return torch.cat([*map(reader.read_image, grids.images.split(100))]), grids


def train_reader(
    reader: GridReader, image: Tensor, grids: Grids, seed: int
) -> list[float]:
    """Train on random batches; return the gate before every 50th batch.

    Args:
        reader: the model.
        image: (grids, S, C) what the image encoder made of the grids.
        grids: to train on.
        seed: of the batches.
    """
    rng = torch.Generator().manual_seed(seed)
    names = index_words()[1][grids.emoji]
    gates: list[float] = []

    def compute_loss(chosen: Tensor) -> Tensor:
        logits, _ = reader(image[chosen], names[chosen])
        return F.cross_entropy(logits, grids.color[chosen])

    def note_gate(step: int, _: float) -> None:
        if step % EVERY == 0:
            gates.append(float(reader.cross.gate.detach()))

    optimize(
        torch.optim.Adam([x for x in reader.parameters() if x.requires_grad], lr=RATE),
        (torch.randint(len(names), (BATCH,), generator=rng) for _ in range(STEPS)),
        compute_loss,
        lambda step: RATE * compute_rate_factor(step / STEPS, WARMUP),
        CLIP,
        [note_gate],
    )
    reader.eval()
    return [*gates, float(reader.cross.gate.detach())]


@torch.no_grad()
def test_reader(reader: GridReader, image: Tensor, grids: Grids) -> dict:
    """Return accuracy and the weight on the named emoji's cell."""
    logits, weights = reader(image, index_words()[1][grids.emoji])
    cells = mark_cell(grids.cell, 2 * CELL // STRIDE)
    mass, right = (weights * cells).sum(dim=1), logits.argmax(1) == grids.color
    found = {"accuracy": right, "mass": mass, "mass over 1/2": mass > 1 / 2}
    return {name: float(x.double().mean()) for name, x in found.items()} | {
        "mass if right": float(mass[right].mean()),
        "mass if wrong": float(mass[~right].mean()),
    }


@torch.no_grad()
def show_weights(reader: GridReader, model: ContrastiveModel) -> list:
    """Return the weights (S) on each of `SHOWN` grids, rounded.

    The grids are `draw_grids(SHOWN, emoji, rng)` with the emoji of the held-out
    artist and a generator whose seed is 0.
    """
    image, grids = draw_data(model, [HELD_OUT], SHOWN, 0)
    _, weights = reader(image, index_words()[1][grids.emoji])
    return [[round(x, 4) for x in row] for row in weights.tolist()]


def measure() -> dict:
    """Return accuracy, mass and gate of each reader and seed."""
    others = [x for x in ARTISTS if x != HELD_OUT]
    found: dict = {"parameters": {}, "readers": {x: [] for x in READERS}}
    for seed in SEEDS:
        model = train_model("convolutions", HELD_OUT, seed)
        train = draw_data(model, others, DRAWN, seed)
        tests = {
            name: draw_data(model, artists, TESTED, 10**6 + seed)
            for name, artists in (
                ("trained artists", others),
                ("held-out artist", [HELD_OUT]),
            )
        }
        for kind, runs in found["readers"].items():
            reader = make_reader(kind, model, seed)
            found["parameters"][kind] = count_parameters(reader)
            run: dict = {"untrained": test_all(reader, tests)}
            run["first weights"] = show_weights(reader, model)
            run["gates"] = train_reader(reader, *train, seed)
            run["last weights"] = show_weights(reader, model)
            runs.append(run | {"trained": test_all(reader, tests)})
    return found


def test_all(reader: GridReader, tests: dict[str, tuple]) -> dict[str, dict]:
    """Return what `test_reader` measures on each of several tests."""
    return {name: test_reader(reader, *data) for name, data in tests.items()}


@experiment()
def emoji_grid() -> dict:
    """Record a text model's answers about images, and where it attends."""
    return record_results(
        "emoji_grid",
        SEEDS,
        measure,
        held_out=HELD_OUT,
        steps=STEPS,
        batch=BATCH,
        rate=RATE,
        drawn=DRAWN,
        tested=TESTED,
        every=EVERY,
        chance=1 / len(COLORS),
    )
