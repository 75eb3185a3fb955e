"""Attention over the frames of clips of digits.

Axes: B clips, T frames
"""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbook.data.digits import (
    Clips,
    draw_which_digit,
    load_digits,
    shrink_digits,
)
from attnbook.models.devices import use_seed
from attnbook.models.encoder_decoder import count_parameters
from attnbook.models.frame_pooling import (
    ClipClassifier,
    FrameEncoder,
    LastFrame,
    MeanPooling,
    TemporalAttentionPooling,
)
from attnbook.training.loop import optimize
from workshop.experiments.record import recorded

SEEDS = (0, 1, 2)
POOLING_FRAMES, POOLING_SIZE, READABLE, POOLING_FACTOR = 8, 20, 2, 2
POOLING_WIDTH, CLASSES = 32, 10
POOLING_STEPS, POOLING_BATCH, POOLING_RATE = 1200, 32, 3e-3
POOLING_TESTED, SHOWN = 2000, 3
METHODS = ("attention", "mean", "last frame")


@cache
def load_half_digits(split: str) -> tuple[Tensor, Tensor]:
    """Return the images of a split at 1 / FACTOR of their size, and labels."""
    images, labels = load_digits(split)
    return shrink_digits(images, POOLING_FACTOR), labels


def draw_still_clips(split: str, count: int, rng: torch.Generator) -> Clips:
    """Return clips of digits of a split of the images."""
    sizes = POOLING_FRAMES, POOLING_SIZE, READABLE
    return draw_which_digit(*load_half_digits(split), count, rng, *sizes)


def draw_test_clips() -> Clips:
    """Return the test clips, which are the same for all models."""
    return draw_still_clips(
        "test", POOLING_TESTED, torch.Generator().manual_seed(10**6)
    )


def build_classifier(method: str, seed: int) -> ClipClassifier:
    """Return a new model that pools the frames by one of the methods."""
    with use_seed(seed):
        encoder, pooling = (
            FrameEncoder(POOLING_SIZE, POOLING_WIDTH),
            build_pooling(method),
        )
        return ClipClassifier(encoder, pooling, POOLING_WIDTH, CLASSES)


def build_pooling(method: str) -> nn.Module:
    """Return what computes the weights of the frames."""
    if method == "attention":
        return TemporalAttentionPooling(POOLING_WIDTH)
    return {"mean": MeanPooling, "last frame": LastFrame}[method]()


def train_classifier(model: ClipClassifier, seed: int) -> None:
    """Train on newly drawn clips; the rate decreases linearly to 0."""
    rng = torch.Generator().manual_seed(seed)
    optimize(
        torch.optim.Adam(model.parameters(), lr=POOLING_RATE),
        (draw_still_clips("train", POOLING_BATCH, rng) for _ in range(POOLING_STEPS)),
        lambda clips: F.cross_entropy(model(clips.frames)[0], clips.label),
        lambda step: POOLING_RATE * (1 - step / POOLING_STEPS),
    )


@torch.no_grad()
def score(model: ClipClassifier, clips: Clips) -> dict:
    """Return the accuracy, and the weight of the readable frames."""
    logits, weights = model(clips.frames)
    right = logits.argmax(-1) == clips.label
    mass = (weights * clips.readable).sum(-1)  # (B,)
    top = clips.readable.gather(1, weights.argmax(-1, keepdim=True))
    last = clips.readable[:, -1]
    return {
        "accuracy": share(right),
        "accuracy_last_readable": share(right[last]),
        "accuracy_last_hidden": share(right[~last]),
        "mass": float(mass.mean()),
        "mass_deviation": float(mass.std()),
        "largest_readable": share(top),
    }


def share(true: Tensor) -> float:
    """Return the share of True."""
    return float(true.double().mean())


def run_method(method: str, seed: int, clips: Clips) -> tuple[dict, Tensor]:
    """Return a row of the record, and the weights of the first test clips."""
    model = build_classifier(method, seed)
    row = {"method": method, "seed": seed}
    row |= {"parameters": count_parameters(model)}
    row |= {"untrained_mass": score(model, clips)["mass"]}
    train_classifier(model, seed)
    row |= score(model, clips)
    with torch.no_grad():
        weights = model(clips.frames[:SHOWN])[1]
    if method == "attention":
        model.pooling = MeanPooling()
        row |= {"accuracy_equal_weights": score(model, clips)["accuracy"]}
    return row, weights


@recorded(
    on_cpu=True,
    seeds=SEEDS,
    frames=POOLING_FRAMES,
    size=POOLING_SIZE,
    readable=READABLE,
    steps=POOLING_STEPS,
    batch=POOLING_BATCH,
    tested=POOLING_TESTED,
)
def moving_digits() -> dict:
    """Record how attention, the mean and the last frame classify clips.

    Models that differ in how they pool the frames: attention with one learned
    query, the mean, and the last frame. Test clips contain other images than
    training clips.
    """
    clips, rows, examples = draw_test_clips(), [], []
    for seed in SEEDS:
        for method in METHODS:
            row, weights = run_method(method, seed, clips)
            rows.append(row)
            if method == "attention":
                examples.append(weights.tolist())
    return {"rows": rows, "chance": READABLE / POOLING_FRAMES, "examples": examples}
