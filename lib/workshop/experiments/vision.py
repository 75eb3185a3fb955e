"""Small classifiers of digits: where they attend in images and in clips.

Axes: B batch, N images of training or patches, C channels, H and W rows and columns,
    R and Q rows and columns of the features, T frames
"""

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from attnbook.data.digits import (
    CANVAS,
    Clips,
    ClutteredDigits,
    draw_cluttered_digits,
    draw_which_digit,
    load_digits,
    shrink_digits,
)
from attnbook.diagnose import record_attention
from attnbook.models.devices import use_seed
from attnbook.models.frame_pooling import (
    ClipClassifier,
    FrameEncoder,
    TemporalAttentionPooling,
)
from attnbook.models.listen_attend_spell import SECONDS
from attnbook.models.recurrent import count_parameters
from attnbook.models.vision import (
    ConvolutionalFeatures,
    PooledClassifier,
    SpatialAttentionPooling,
    VisionTransformer,
    cut_patches,
    measure_mass_in_boxes,
)
from attnbook.models.whisper import RATE, STEP
from attnbook.records import read_record
from attnbook.training.loop import optimize
from workshop.experiments.record import recorded
from workshop.experiments.speech import (
    TEST_SEED,
    Utterance,
    draw_utterances,
    number_letters,
)

BATCH, WARMUP = 32, 50


def train_classifier(
    model: nn.Module,
    images: Float[Tensor, "N C H W"],
    labels: Int64[Tensor, "N"],
    rate: float,
    steps: int,
    seed: int,
) -> None:
    """Train with Adam on random batches, with a linear warm-up and decay."""
    rng = torch.Generator().manual_seed(seed)
    model.train()
    optimize(
        torch.optim.Adam(model.parameters(), lr=rate),
        (torch.randint(len(images), (BATCH,), generator=rng) for _ in range(steps)),
        lambda chosen: F.cross_entropy(model(images[chosen]), labels[chosen]),
        lambda step: rate * min(1, (step + 1) / WARMUP) * (1 - step / steps),
    )
    model.eval()


@torch.no_grad()
def measure_accuracy(
    model: nn.Module, images: Float[Tensor, "N C H W"], labels: Int64[Tensor, "N"]
) -> float:
    return float((model(images).argmax(-1) == labels).double().mean())


SEEDS = (0, 1, 2)
SIZES = (250, 500, 1_000, 2_000)  # images of training
SHUFFLED_SIZES = (250, 2_000)
STEPS, PATCH, ERASED = 800, 7, 4
# The best of 0.001, 0.003, 0.006, 0.008 and 0.012 (without 0.008 for "cnn") on
# 400 of the training images, with one other seed and the other 1,600 images.
RATES = {"vit": 0.008, "no positions": 0.008, "cnn": 0.006}


class NoEncoding(nn.Module):
    """Encodings that are zero at every position: the model has no order."""

    def __init__(self, length: int, width: int):
        super().__init__()

    def forward(self, positions: Int64[Tensor, "N"]) -> Float[Tensor, "N 1"]:
        return torch.zeros(len(positions), 1)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "vit": lambda: VisionTransformer(patch=PATCH),
    "cnn": lambda: nn.Sequential(
        ConvolutionalFeatures((1, 16, 32, 32), (2, 2, 2)),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    ),
    "no positions": lambda: VisionTransformer(patch=PATCH, encoding=NoEncoding),
}
SHOWN = (13, 22)  # test images in the record: a 3 and a 2


@cache
def load_images(split: str) -> tuple[Tensor, Tensor]:
    images, labels = load_digits(split)
    return images[:, None].float() / 255, labels


def shuffle_patches(
    images: Float[Tensor, "B 1 H W"], order: Int64[Tensor, "*B N"]
) -> Float[Tensor, "B 1 H W"]:
    """Return images whose patches are permuted: patch n is then `order[n]`."""
    patches = cut_patches(images, PATCH)  # (B, N, P)
    order = order.expand(patches.shape[:2])
    moved = patches.gather(1, order[..., None].expand_as(patches))
    return F.fold(moved.mT, images.shape[-2:], PATCH, stride=PATCH)


def draw_order(*shape: int, seed: int) -> Int64[Tensor, "*B N"]:
    rng = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=rng).argsort(dim=-1)


def run_model(
    name: str, size: int, seed: int, shuffled: bool = False
) -> tuple[dict, Any]:
    (images, labels), (tests, wanted) = map(load_images, ("train", "test"))
    images, labels = images[:size], labels[:size]
    if shuffled:
        order = draw_order((28 // PATCH) ** 2, seed=seed)
        images, tests = (shuffle_patches(x, order) for x in (images, tests))
    with use_seed(seed):
        model = MODELS[name]()
    train_classifier(model, images, labels, RATES[name], STEPS, seed)
    row = {"model": name, "size": size, "seed": seed, "shuffled": shuffled}
    row["accuracy"] = measure_accuracy(model, tests, wanted)
    return row, model


@torch.no_grad()
def read_class_attention(
    model: VisionTransformer, images: Float[Tensor, "B 1 H W"]
) -> Float[Tensor, "B N"]:
    """Return the weights from the class token to the patches, last block."""
    with record_attention(model) as found:
        model(images)
    *_, last = found.values()
    weights = last[0].mean(dim=1)[:, 0, 1:]  # (B, H, 1 + N, 1 + N) to (B, N)
    return weights / weights.sum(dim=-1, keepdim=True)


def erase_patches(
    images: Float[Tensor, "B 1 H W"], importance: Float[Tensor, "B N"]
) -> Float[Tensor, "B 1 H W"]:
    """Return images whose `ERASED` most important patches are black."""
    patches = cut_patches(images, PATCH).clone()
    chosen = importance.topk(ERASED, dim=-1).indices
    rows = torch.arange(len(images))[:, None]
    patches[rows, chosen] = 0.0
    return F.fold(patches.mT, images.shape[-2:], PATCH, stride=PATCH)


def measure_attention(model: VisionTransformer, seed: int) -> dict:
    tests, labels = load_images("test")
    weights, patches = read_class_attention(model, tests), cut_patches(tests, PATCH)
    ink = patches.amax(dim=-1) > 0  # a pixel is not black
    with use_seed(seed):
        before = read_class_attention(MODELS["vit"](), tests)
    rng = torch.Generator().manual_seed(seed)
    measures = {
        "most attended": weights,
        "least attended": -weights,
        "lightest": patches.sum(dim=-1),
        "random": torch.rand(ink.shape, generator=rng),
    }
    chosen = {name: x.masked_fill(~ink, -torch.inf) for name, x in measures.items()}
    return {
        "mass_on_ink": float((weights * ink).sum(-1).mean()),
        "untrained_mass_on_ink": float((before * ink).sum(-1).mean()),
        "share_of_patches_with_ink": float(ink.double().mean()),
        "erased": {
            name: measure_accuracy(model, erase_patches(tests, x), labels)
            for name, x in chosen.items()
        },
    }


@recorded(seeds=SEEDS)
def vision_digits() -> dict:
    """Record a Vision Transformer and a convolutional network on digits.

    Both have about 19,000 parameters, and are trained for equally many steps. The
    controls: one permutation of the patches for all images, a Vision Transformer
    without positions, and patches that are made black.

    Source: Dosovitskiy et al. (2021), section 4.3, https://arxiv.org/abs/2010.11929
        (results by the number of images)
    """
    rows: list[dict] = []
    models = []
    tests, labels = load_images("test")
    for seed in SEEDS:
        mixed = shuffle_patches(tests, draw_order(len(tests), 16, seed=seed))
        for size in SIZES:
            rows.append(run_model("cnn", size, seed)[0])
            row, model = run_model("vit", size, seed)
            rows.append(row)
        row["mixed_accuracy"] = measure_accuracy(model, mixed, labels)
        row["attention"] = measure_attention(model, seed)
        models.append(model)
        for size, name in product(SHUFFLED_SIZES, ("vit", "cnn")):
            rows.append(run_model(name, size, seed, shuffled=True)[0])
        row, unordered = run_model("no positions", SIZES[-1], seed)
        row["mixed_accuracy"] = measure_accuracy(unordered, mixed, labels)
        rows.append(row)
    shown = tests[[*SHOWN]]
    with torch.no_grad():
        predicted = models[0](shown).argmax(-1).tolist()
    weights = read_class_attention(models[0], shown).tolist()
    found = zip(SHOWN, labels[[*SHOWN]].tolist(), predicted, weights, strict=True)
    names = "index", "label", "predicted", "weights"
    return {
        "rows": rows,
        "examples": [dict(zip(names, one, strict=True)) for one in found],
    }


TRAINED, TESTED, PLACE_STEPS, PLACE_RATE = 4_000, 1_000, 900, 0.006


class MeanPooling(nn.Module):
    """A linear layer with ReLU at each place, then the mean over the places."""

    def __init__(self, width: int):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, features: Float[Tensor, "B N C"]) -> Float[Tensor, "B C"]:
        return F.relu(self.layer(features)).mean(dim=1)


class MaxPooling(MeanPooling):
    """The same layer, then each channel's largest value over the places."""

    def forward(self, features: Float[Tensor, "B N C"]) -> Float[Tensor, "B C"]:
        return F.relu(self.layer(features)).amax(dim=1)


POOLINGS: dict[str, type[nn.Module]] = {
    "attention": SpatialAttentionPooling,
    "mean": MeanPooling,
    "maximum": MaxPooling,
}
GRID = 14  # rows and columns of the features; a cell has 4 by 4 pixels
PLACES_SHOWN = 2  # test canvases of each kind in the record
HALF = 0.5  # "inside": more than half of the mass is in the box


@cache
def draw_split(split: str, count: int) -> ClutteredDigits:
    """Return the canvases of a split, the same in every run."""
    rng = torch.Generator().manual_seed(0 if split == "train" else 1)
    return draw_cluttered_digits(*load_digits(split), count, rng)


@torch.no_grad()
def map_places(model: PooledClassifier, images: Tensor) -> Float[Tensor, "B R Q"]:
    """Return a model's weights: attention, or the predicted class's map.

    With `MeanPooling`, the logit is the mean over the places of output weight ·
    transformed feature, plus the bias: the class activation map has each place's
    share of the positive part.
    """
    features = model.read_places(images)
    if isinstance(model.pooling, SpatialAttentionPooling):
        weights = model.pooling.compute_weights(features)
    else:
        weight = model.output.weight[model(images).argmax(-1)]  # (B, C)
        transformed = F.relu(model.pooling.layer(features))
        parts = (transformed @ weight[:, :, None])[..., 0].relu()  # (B, N)
        weights = parts / parts.sum(-1, keepdim=True).clamp(min=1e-12)
    return weights.unflatten(-1, (GRID, GRID))


@torch.no_grad()
def judge(model: PooledClassifier, tests: ClutteredDigits) -> tuple[dict, list[dict]]:
    """Return how much of the maps is in the boxes, and some canvases of each kind."""
    maps = map_places(model, tests.images)
    mass = measure_mass_in_boxes(maps, tests.boxes, CANVAS)
    predicted = model(tests.images).argmax(-1)
    inside, right = mass > HALF, predicted == tests.labels
    kinds = {
        "inside, right": inside & right,
        "inside, wrong": inside & ~right,
        "outside, right": ~inside & right,
        "outside, wrong": ~inside & ~right,
    }
    counts = {name: int(x.sum()) for name, x in kinds.items()}
    shown = [
        {
            "index": i,
            "label": int(tests.labels[i]),
            "predicted": int(predicted[i]),
            "box": tests.boxes[i].tolist(),
            "mass": float(mass[i]),
            "thousandths": (maps[i] * 1000).round().int().tolist(),
        }
        for kind in kinds.values()
        for i in kind.nonzero().flatten()[:PLACES_SHOWN].tolist()
    ]
    return {"mass": float(mass.mean()), "counts": counts}, shown


@recorded(seeds=SEEDS)
def spatial_attention() -> dict:
    """Record where a learned query attends, and what pooling predicts.

    Attention, mean and maximum pool the same convolutional features, with equally
    many parameters and training steps. Attention and, for comparison, the class
    activation map of the mean are scored by their mass in the box of the digit.

    Source: the cluttered digits of Mnih et al. (2014), section 4.1,
        https://arxiv.org/abs/1406.6247; class activation maps of Zhou et
        al. (2016), section 2, https://arxiv.org/abs/1512.04150
    """
    rows, examples = [], []
    trained, tests = draw_split("train", TRAINED), draw_split("test", TESTED)
    for seed, pooling in product(SEEDS, POOLINGS):
        with use_seed(seed):
            features = ConvolutionalFeatures((1, 16, 32, 32), (2, 2, 1))
            model = PooledClassifier(features, POOLINGS[pooling])
        row: dict = {"pooling": pooling, "seed": seed}
        if pooling != "maximum":
            row["untrained"] = judge(model, tests)[0]
        data = trained.images, trained.labels
        train_classifier(model, *data, PLACE_RATE, PLACE_STEPS, seed)
        row["accuracy"] = measure_accuracy(model, tests.images, tests.labels)
        if pooling != "maximum":
            row["map"], shown = judge(model, tests)
            examples = examples or shown  # of attention, with the first seed
        rows.append(row)
    light = tests.images[:, 0]
    chances = {  # the boxes' share of the area, and of all light
        "area": torch.full((len(light), GRID, GRID), GRID**-2),
        "light": light / light.sum(dim=(-2, -1), keepdim=True),
    }
    chance = {
        name: float(measure_mass_in_boxes(x, tests.boxes, CANVAS).mean())
        for name, x in chances.items()
    }
    return {"rows": rows, "chance": chance, "examples": examples}


LEVELS = 15  # of gray above the background
FRAMES, BANDS = 2, 2  # that become one column, and one row, of pixels
PIXEL = FRAMES * STEP / RATE  # seconds of a column


def write_gray(image: Float[Tensor, "H W"]) -> list[str]:
    """Return rows of hexadecimal digits for numbers between 0 and 1."""
    levels = (image * LEVELS).round().int().tolist()
    return ["".join(f"{x:x}" for x in row) for row in levels]


def describe_picture(number: int, example: dict) -> dict:
    tests = draw_split("test", TESTED)
    label, predicted = str(example["label"]), str(example["predicted"])
    step = {
        "label": predicted,
        "part": label,
        "thousandths": [x for row in example["thousandths"] for x in row],
        "box": example["box"],
    }
    return {
        "kind": "picture",
        "title": f"Picture {number}: the digit {label}, read as {predicted}",
        "gray": write_gray(tests.images[example["index"], 0]),
        "grid": [GRID, GRID],
        "milliseconds": 0,
        "steps": [step],
    }


def draw_spectrogram(
    frames: Float[Tensor, "F C"], columns: int
) -> Float[Tensor, "H W"]:
    """Return a picture of a sound between 0 and 1, low frequencies below."""
    silence = frames.min()
    filled = silence.repeat(columns * FRAMES, frames.shape[1])
    filled[: len(frames)] = frames[: len(filled)]
    joined = filled.unflatten(0, (-1, FRAMES)).unflatten(-1, (-1, BANDS))
    image = joined.mean(dim=(1, 3)).T.flip(0)
    return (image - image.min()) / (image.max() - image.min())


def describe_sound(number: int, example: dict, one: Utterance) -> dict:
    words = list(one.spoken.words)
    if words != example["words"]:
        raise ValueError(f"the words {words} are not {example['words']}")
    states = len(example["thousandths"][0])
    image = draw_spectrogram(one.frames, round(states * SECONDS / PIXEL))
    text, steps = " ".join(words), []
    for row, word in number_letters(words):
        begin, end = (x / PIXEL for x in example["intervals"][word])
        steps.append(
            {
                "label": text[row],
                "part": words[word],
                "thousandths": example["thousandths"][row],
                "box": [0, round(begin, 2), len(image), round(end, 2)],
            }
        )
    return {
        "kind": "sound",
        "title": f"Sound {number}: {text}",
        "gray": write_gray(image),
        "grid": [1, states],
        "milliseconds": round(1000 * SECONDS * states),
        "steps": steps,
    }


@recorded(seeds=[0])
def picture_and_sound() -> dict:
    """Record pictures and sounds with the attention of two trained models.

    Nothing is trained here: the weights are the examples of two other records, and
    the pictures and sounds are drawn again with the seeds of those runs.
    """
    pictures = read_record("spatial_attention")["results"]["examples"]
    heard = read_record("listen_attend_spell")["results"]["example"]
    count = len(heard["words"])
    one = draw_utterances(TEST_SEED + count, 1, (count, count))[0]
    items = [describe_picture(i + 1, x) for i, x in enumerate(pictures)]
    return {"items": [*items, describe_sound(1, heard, one)]}


POOLING_FRAMES, POOLING_SIZE, READABLE, POOLING_FACTOR = 8, 20, 2, 2
POOLING_WIDTH, CLASSES = 32, 10
POOLING_STEPS, POOLING_BATCH, POOLING_RATE = 1200, 32, 3e-3
POOLING_TESTED, CLIPS_SHOWN = 2000, 3


class FixedWeights(nn.Module):
    """The same weights of the frames for every clip."""

    def __init__(self, *weights: float):
        super().__init__()
        self.weights = torch.tensor(weights)

    def forward(self, features: Float[Tensor, "B T C"]) -> Float[Tensor, "B T"]:
        return self.weights.expand(features.shape[:2])


EQUAL = (1 / POOLING_FRAMES,) * POOLING_FRAMES
METHODS: dict[str, Callable[[], nn.Module]] = {
    "attention": lambda: TemporalAttentionPooling(POOLING_WIDTH),
    "mean": lambda: FixedWeights(*EQUAL),
    "last frame": lambda: FixedWeights(*[0.0] * (POOLING_FRAMES - 1), 1.0),
}


@cache
def load_half_digits(split: str) -> tuple[Tensor, Tensor]:
    images, labels = load_digits(split)
    return shrink_digits(images, POOLING_FACTOR), labels


def draw_still_clips(split: str, count: int, rng: torch.Generator) -> Clips:
    sizes = POOLING_FRAMES, POOLING_SIZE, READABLE
    return draw_which_digit(*load_half_digits(split), count, rng, *sizes)


def train_on_clips(model: ClipClassifier, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    optimize(
        torch.optim.Adam(model.parameters(), lr=POOLING_RATE),
        (draw_still_clips("train", POOLING_BATCH, rng) for _ in range(POOLING_STEPS)),
        lambda clips: F.cross_entropy(model(clips.frames)[0], clips.label),
        lambda step: POOLING_RATE * (1 - step / POOLING_STEPS),
    )


@torch.no_grad()
def score(model: ClipClassifier, clips: Clips) -> tuple[float, float]:
    """Return the accuracy, and the weight of the readable frames."""
    logits, weights = model(clips.frames)
    right = logits.argmax(-1) == clips.label
    mass = (weights * clips.readable).sum(-1)  # (B,)
    return float(right.double().mean()), float(mass.mean())


@recorded(seeds=SEEDS)
def moving_digits() -> dict:
    """Record how attention, the mean and the last frame classify clips.

    Test clips contain other images than training clips.
    """
    rng, rows, examples = torch.Generator().manual_seed(10**6), [], []
    clips = draw_still_clips("test", POOLING_TESTED, rng)
    for seed, method in product(SEEDS, METHODS):
        with use_seed(seed):
            encoder = FrameEncoder(POOLING_SIZE, POOLING_WIDTH)
            model = ClipClassifier(encoder, METHODS[method](), POOLING_WIDTH, CLASSES)
        row = {"method": method, "seed": seed, "parameters": count_parameters(model)}
        row["untrained_mass"] = score(model, clips)[1]
        train_on_clips(model, seed)
        row["accuracy"], row["mass"] = score(model, clips)
        if method == "attention":
            with torch.no_grad():
                examples.append(model(clips.frames[:CLIPS_SHOWN])[1].tolist())
            model.pooling = FixedWeights(*EQUAL)
            row["accuracy_equal_weights"] = score(model, clips)[0]
        rows.append(row)
    return {"rows": rows, "chance": READABLE / POOLING_FRAMES, "examples": examples}
