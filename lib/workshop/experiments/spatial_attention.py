"""Where does a learned query attend? A digit whose place is known.

Attention, mean and maximum pool the same convolutional features, with equally
many parameters and training steps. Attention and, for comparison, the class
activation map of the mean are scored by their mass in the box of the digit.

Source: the cluttered digits of Mnih et al. (2014), section 4.1,
    https://arxiv.org/abs/1406.6247; class activation maps of Zhou et
    al. (2016), section 2, https://arxiv.org/abs/1512.04150
Axes: B batch, R and Q rows and columns of the features
"""

from functools import cache

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnbook.data.cluttered_digits import (
    CANVAS,
    PIECES,
    ClutteredDigits,
    draw_cluttered_digits,
)
from attnbook.data.digits import load_digits
from attnbook.models.convolutional import ConvolutionalFeatures
from attnbook.models.encoder_decoder import count_parameters
from attnbook.models.spatial_attention import (
    MaxPooling,
    MeanPooling,
    PooledClassifier,
    SpatialAttentionPooling,
    map_class,
    measure_mass_in_boxes,
)
from workshop.experiments.image_training import (
    build_with_seed,
    measure_accuracy,
    train_classifier,
)
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment

SEEDS = (0, 1, 2)
TRAINED, TESTED, STEPS, RATE = 4_000, 1_000, 900, 0.006
POOLINGS: dict[str, type[nn.Module]] = {
    "attention": SpatialAttentionPooling,
    "mean": MeanPooling,
    "maximum": MaxPooling,
}
GRID = 14  # rows and columns of the features; a cell has 4 by 4 pixels
SHOWN = 2  # test canvases of each kind in the record
HALF = 0.5  # "inside": more than half of the mass is in the box


@cache
def draw_split(split: str, count: int) -> ClutteredDigits:
    """Return the canvases of a split, the same in every run."""
    rng = torch.Generator().manual_seed(0 if split == "train" else 1)
    return draw_cluttered_digits(*load_digits(split), count, rng)


def build_model(pooling: str, seed: int) -> PooledClassifier:
    """Return a new model with one of the poolings."""

    def build() -> PooledClassifier:
        features = ConvolutionalFeatures((1, 16, 32, 32), (2, 2, 1))
        return PooledClassifier(features, POOLINGS[pooling])

    return build_with_seed(build, seed)


@torch.no_grad()
def map_places(model: PooledClassifier, images: Tensor) -> Float[Tensor, "B R Q"]:
    """Return a model's weights: attention, or the predicted class's map."""
    if isinstance(model.pooling, SpatialAttentionPooling):
        weights = model.pooling.compute_weights(model.read_places(images))
    else:
        weights = map_class(model, images, model(images).argmax(-1))
    return weights.unflatten(-1, (GRID, GRID))


def count_agreement(
    inside: Bool[Tensor, " B"], right: Bool[Tensor, " B"]
) -> dict[str, int]:
    """Return how many images have the mass inside or not, and are right."""
    return {
        "inside, right": int((inside & right).sum()),
        "inside, wrong": int((inside & ~right).sum()),
        "outside, right": int((~inside & right).sum()),
        "outside, wrong": int((~inside & ~right).sum()),
    }


@torch.no_grad()
def score_map(model: PooledClassifier, tests: ClutteredDigits) -> dict:
    """Return the mass of a model's map in the boxes, and what it predicts."""
    weights = map_places(model, tests.images)
    mass = measure_mass_in_boxes(weights, tests.boxes, CANVAS)
    right = model(tests.images).argmax(-1) == tests.labels
    return {
        "mass": float(mass.mean()),
        "mass_deviation": float(mass.std()),
        "counts": count_agreement(mass > HALF, right),
    }


def measure_chance(tests: ClutteredDigits) -> dict:
    """Return the boxes' share of the area, and of all light."""
    side = tests.images.shape[-1]
    even = torch.full((len(tests.images), GRID, GRID), GRID**-2)
    light = tests.images[:, 0]
    light = light / light.sum(dim=(-2, -1), keepdim=True)
    return {
        name: float(measure_mass_in_boxes(x, tests.boxes, side).mean())
        for name, x in (("area", even), ("light", light))
    }


def run_pooling(pooling: str, seed: int) -> tuple[dict, PooledClassifier]:
    """Train a model, and return its row and the model."""
    train, tests = draw_split("train", TRAINED), draw_split("test", TESTED)
    model = build_model(pooling, seed)
    row = {"pooling": pooling, "seed": seed}
    mapped = pooling != "maximum"
    if mapped:
        row["untrained"] = score_map(model, tests)
    train_classifier(model, train.images, train.labels, RATE, STEPS, seed)
    row["accuracy"] = measure_accuracy(model, tests.images, tests.labels)
    row["train_accuracy"] = measure_accuracy(model, train.images, train.labels)
    if mapped:
        row["map"] = score_map(model, tests)
    return row, model


@torch.no_grad()
def describe_examples(model: PooledClassifier) -> list[dict]:
    """Return test canvases by index: box, weights, prediction.

    The first two with the mass inside and a right prediction, the first two
    with a wrong one, then the same with the mass outside.
    """
    tests = draw_split("test", TESTED)
    weights = map_places(model, tests.images)
    mass = measure_mass_in_boxes(weights, tests.boxes, CANVAS)
    predicted = model(tests.images).argmax(-1)
    inside, right = mass > HALF, predicted == tests.labels
    found = []
    for kind in (
        *(inside & right, inside & ~right),
        *(~inside & right, ~inside & ~right),
    ):
        for index in kind.nonzero().flatten()[:SHOWN].tolist():
            weight = weights[index] * 1000
            found.append(
                {
                    "index": index,
                    "label": int(tests.labels[index]),
                    "predicted": int(predicted[index]),
                    "box": tests.boxes[index].tolist(),
                    "mass": float(mass[index]),
                    "thousandths": weight.round().int().tolist(),
                }
            )
    return found


@experiment(on_cpu=True)
@recorded(
    seeds=SEEDS,
    steps=STEPS,
    rate=RATE,
    trained=TRAINED,
    tested=TESTED,
    pieces=PIECES,
)
def spatial_attention() -> dict:
    """Record where a learned query attends, and what pooling predicts."""
    rows, examples = [], []
    for seed in SEEDS:
        for pooling in POOLINGS:
            row, model = run_pooling(pooling, seed)
            rows.append(row)
            if (pooling, seed) == ("attention", SEEDS[0]):
                examples = describe_examples(model)
    return {
        "rows": rows,
        "chance": measure_chance(draw_split("test", TESTED)),
        "parameters": {
            name: count_parameters(build_model(name, 0)) for name in POOLINGS
        },
        "examples": examples,
    }
