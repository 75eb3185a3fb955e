"""Does an encoder learn the coordinates of the decoder's queries?

The dot score compares coordinate by coordinate. Decoders with this score are
trained on the grammar, once as they are and once with keys that a fixed random
rotation multiplies from the first step on. Then the rotation of the keys is
changed, and one matrix is trained alone. Only keys are rotated, never values.

Axes: M memory width
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from attnbook.attention.luong import dot_scores
from attnbook.models.encoder_decoder import EncoderDecoder
from attnbook.training.loop import Trainer, compute_held_out_loss
from attnbook.training.run import change_seed
from attnbook.training.scoring import (
    compute_shifted_error,
    predict_links,
    score_sequences,
)
from attnbook.training.tasks import Task
from attnbook.training.trained import load_trained
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment
from workshop.experiments.runs import SHORT_TALK

SEEDS, DRAWS = (0, 1, 2), 3
ALONE = {"epochs": 1, "rate": 1e-2}  # of a matrix that is trained alone


class RotatedDot(nn.Module):
    """q · W R k with a fixed rotation R and a matrix W, at first the identity.

    Attributes:
        rotation: (M, M) R, not trained.
        matrix: (M, M) W.
    """

    def __init__(self, width: int, rotation: Tensor | None = None):
        super().__init__()
        chosen = torch.eye(width) if rotation is None else rotation
        # A copy: loading other weights writes into it.
        self.register_buffer("rotation", chosen.clone())
        self.matrix = nn.Parameter(torch.eye(width), requires_grad=False)

    def key(self, memory: Tensor) -> Tensor:
        """Return W R k for every key."""
        return memory @ (self.matrix @ self.rotation).T

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return the scores of queries against keys after `key`."""
        return dot_scores(query, keys)


def draw_rotation(width: int, seed: int) -> Tensor:
    """Return a random orthogonal matrix."""
    rng = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(width, width, generator=rng)).Q


@torch.no_grad()
def compute_closeness(matrix: Tensor) -> float:
    """Return the cosine similarity of a square matrix and the identity."""
    norm = matrix.norm() * len(matrix) ** 0.5
    return float(matrix.trace() / norm)


def build_with_score(model: EncoderDecoder, score: nn.Module) -> EncoderDecoder:
    """Put another score into a decoder, and return the model."""
    model.decoder.attention.score = score
    return model


def measure(model: EncoderDecoder, data: Task) -> dict[str, float]:
    """Return loss and alignment error on the test sentences."""
    pairs: Sequence = data.splits.test
    links = predict_links(data, model, pairs)
    return {
        "loss": compute_held_out_loss(model, data.encode(pairs)),
        "alignment_error": compute_shifted_error(links, pairs, 0),
    }


def train_alone(
    model: EncoderDecoder, data: Task, parameter: nn.Parameter, seed: int
) -> None:
    """Train one parameter for an epoch, the others unchanged."""
    for x in model.parameters():
        x.requires_grad_(x is parameter)
    recipe = replace(SHORT_TALK.recipe, seed=100 + seed, **ALONE)
    valid = data.encode(data.splits.valid)
    Trainer(model, data.encode(data.splits.train), valid, recipe).run(progress=False)


def train(seed: int, data: Task, score: Callable) -> EncoderDecoder:
    """Train a decoder with a dot score from the first weights of its seed."""
    run = change_seed(SHORT_TALK, seed, score="dot")
    model = build_with_score(run.model(), score(run.decoder))
    encoded = [data.encode(x) for x in (data.splits.train, data.splits.valid)]
    Trainer(model, *encoded, run.recipe).run(progress=False)
    return model


def measure_seed(seed: int, data: Task) -> dict:
    """Return what rotations do to the decoders of one seed."""
    width = SHORT_TALK.decoder
    rotations = [draw_rotation(width, 10 * seed + n) for n in range(DRAWS)]
    dot = train(seed, data, RotatedDot)
    weights = {k: v.clone() for k, v in dot.state_dict().items()}

    def fresh(rotation: Tensor | None = None) -> EncoderDecoder:
        dot.load_state_dict(weights)
        return build_with_score(dot, RotatedDot(width, rotation))

    found: dict = {"seed": seed, "trained": measure(fresh(), data)}
    found["trained"] |= compute_errors(fresh(), data)
    found["rotated"] = [measure(fresh(r), data) for r in rotations]
    for name, rotation in ("matrix", None), ("undoing", rotations[0]):
        model = fresh(rotation)
        score = model.decoder.attention.score
        train_alone(model, data, score.matrix, seed)
        found[name] = measure(model, data) | {
            "closeness": compute_closeness(score.matrix @ score.rotation)
        }
    model = fresh()
    train_alone(model, data, model.decoder.mix.weight, seed)
    found["other matrix"] = measure(model, data)
    rotated = train(seed, data, lambda n: RotatedDot(n, rotations[0]))
    found["from the start"] = measure(rotated, data) | compute_errors(rotated, data)
    build_with_score(rotated, RotatedDot(width))
    found["rotated back"] = measure(rotated, data)
    return found


def compute_errors(model: EncoderDecoder, data: Task) -> dict[str, float]:
    """Return the share of wrong sentences, generated."""
    scored = score_sequences(data, model, data.splits.test)
    return {"sequence_error": scored["sequence_error"]}


def general_matrix(data: Task) -> dict:
    """Return how much of a trained general score is a multiple of identity."""
    model = load_trained("grammar_luong_general_0")[0]
    W = model.decoder.attention.score.key.weight
    found = {"trained": measure(model, data), "closeness": compute_closeness(W)}
    width = len(W)
    with torch.no_grad():
        W.copy_(torch.eye(width) * W.trace() / width)
    return found | {"multiple of the identity": measure(model, data)}


@experiment(on_cpu=True)
@recorded(SEEDS)
def key_rotation() -> dict:
    """Record decoders with dot scores whose keys are rotated."""
    data = SHORT_TALK.data()
    return {
        "seeds": [measure_seed(seed, data) for seed in SEEDS],
        "general": general_matrix(data),
    }
