"""Attention over clips of digits: which digit, and in which direction it moves.

Axes: B clips, T frames, N patches of a frame, H heads
"""

from functools import cache

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnbook.attention.space_time import JointAttention
from attnbook.data.digits import (
    DIRECTIONS,
    Clips,
    draw_which_digit,
    draw_which_direction,
    load_digits,
    shrink_digits,
)
from attnbook.models.devices import use_seed
from attnbook.models.encoder_decoder import count_parameters
from attnbook.models.patches import cut_patches
from attnbook.models.video_transformer import (
    FACTORIZED,
    JOINT,
    SPACE_ONLY,
    ClipClassifier,
    FrameEncoder,
    LastFrame,
    MeanPooling,
    TemporalAttentionPooling,
    VideoTransformer,
)
from attnbook.training.loop import optimize
from workshop.experiments.record import recorded, sweep

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


MOTION_FRAMES, MOTION_SIZE, PATCH, SPEED, MOTION_FACTOR = 6, 12, 4, 3, 4
MOTION_WIDTH, HEADS = 32, 2
MOTION_STEPS, MOTION_BATCH, MOTION_RATE, WARM_UP = 1500, 32, 3e-3, 50
MOTION_TESTED, SELECTED = 1000, 500
KINDS: dict[str, tuple[type[JointAttention], ...]] = {
    "joint": JOINT,
    "factorized": FACTORIZED,
    "space only": SPACE_ONLY,
}
Table = Float[Tensor, "B T N T N"]


@cache
def load_quarter_digits(split: str) -> Float[Tensor, "N D D"]:
    """Return the images of a split at 1 / FACTOR of their size."""
    return shrink_digits(load_digits(split)[0], MOTION_FACTOR)


def draw_moving_clips(split: str, count: int, rng: torch.Generator) -> Clips:
    """Return clips of digits of a split of the images."""
    digits = load_quarter_digits(split)
    return draw_which_direction(digits, count, rng, MOTION_FRAMES, MOTION_SIZE, SPEED)


def build_transformer(kind: str, seed: int) -> VideoTransformer:
    """Return a new model with one of the kinds of attention."""
    with use_seed(seed):
        return VideoTransformer(
            MOTION_FRAMES,
            MOTION_SIZE,
            PATCH,
            len(DIRECTIONS),
            KINDS[kind],
            MOTION_WIDTH,
            HEADS,
        )


def train_transformer(model: VideoTransformer, seed: int) -> None:
    """Train on newly drawn clips; the rate rises, then falls linearly to 0."""
    rng = torch.Generator().manual_seed(seed)
    optimize(
        torch.optim.Adam(model.parameters(), lr=MOTION_RATE),
        (draw_moving_clips("train", MOTION_BATCH, rng) for _ in range(MOTION_STEPS)),
        lambda clips: F.cross_entropy(model(clips.frames)[0], clips.label),
        lambda step: MOTION_RATE * min(step / WARM_UP, 1 - step / MOTION_STEPS),
    )


@torch.no_grad()
def compute_accuracy(model: VideoTransformer, frames: Tensor, label: Tensor) -> float:
    """Return the share of clips whose direction is predicted."""
    right = model(frames)[0].argmax(-1) == label
    return float(right.double().mean())


def shuffle_frames(frames: Tensor, rng: torch.Generator) -> Tensor:
    """Return every clip with its frames in a random order."""
    order = torch.rand(frames.shape[:2], generator=rng).argsort(1)
    return frames[torch.arange(len(frames))[:, None], order]


def find_digit_patches(clips: Clips) -> Bool[Tensor, "B T N"]:
    """Return which patches are at least half in the digit's square."""
    inside = clips.inside.flatten(0, 1)[:, None].double()
    covered = cut_patches(inside, PATCH).mean(-1)  # (B · T, N)
    return (covered >= 0.5).unflatten(0, clips.inside.shape[:2])


@torch.no_grad()
def read_tables(model: VideoTransformer, clips: Clips) -> dict[str, Table]:
    """Return weights from every patch to every patch, by attention and head.

    In joint attention, each head is a table. The factorized model has one: the
    product of its attention over time and its attention over space, each
    averaged over the heads. Space alone has one per head, with zeros elsewhere.
    """
    (first, second), frames = model(clips.frames)[1][0], MOTION_FRAMES
    batch, places = len(clips.frames), (MOTION_SIZE // PATCH) ** 2
    if first.shape[-1] == frames * places:
        return {
            f"{a}.{h}": weights[:, h]
            .unflatten(2, (frames, places))
            .unflatten(1, (frames, places))
            for a, weights in enumerate((first, second))
            for h in range(HEADS)
        }
    space = first.mean(1).unflatten(0, (batch, frames))  # (B, T, N, N)
    if second.shape[-1] == places:
        return {"space": spread_over_frames(space)}
    time = second.mean(1).unflatten(0, (batch, places))  # (B, N, T, T)
    # From (t, n) over time to (s, n), and there over space to (s, m).
    return {"time, space": torch.einsum("bnts,bsnm->btnsm", time, space)}


def spread_over_frames(space: Float[Tensor, "B T N N"]) -> Table:
    """Return attention over space as a table with zeros between frames."""
    frames = torch.eye(MOTION_FRAMES)[None, :, None, :, None]
    return frames * space[:, :, :, None]


def measure_profile(table: Table, on: Bool[Tensor, "B T N"]) -> dict[str, list[float]]:
    """Return the weight on the digit by the distance of the frames.

    Returns:
        for s - t from -(T - 1) to T - 1: the weight that a query on the digit
        gives to the digit's patches in frame s, its chance level (equal weights
        for all patches), and the level of equal weights for all patches on the
        digit; means over the queries for which frame s exists.
    """
    _, frames, places = on.shape
    real = on.to(table.dtype)
    found = torch.einsum("btnsm,bsm->btns", table, real)
    chance = (real.sum(-1) / (frames * places))[:, None, None].expand_as(found)
    digit = (real.sum(-1) / real.sum((1, 2))[:, None])[:, None, None]
    rows: dict[str, list[float]] = {"mass": [], "chance": [], "digit": []}
    levels = (found, chance, digit.expand_as(found))
    for shift in range(1 - frames, frames):
        queries = select_queries(on, shift)
        for values, level in zip(rows.values(), levels, strict=True):
            shifted = level.diagonal(shift, dim1=1, dim2=3).transpose(1, 2)
            values.append(float(shifted[queries].mean()))
    return rows


def select_queries(on: Bool[Tensor, "B T N"], shift: int) -> Bool[Tensor, "B S N"]:
    """Return the queries on the digit whose frame t + shift exists."""
    frames = on.shape[1]
    return on[:, max(0, -shift) : frames - max(0, shift)]


def measure_neighbors(table: Table, on: Bool[Tensor, "B T N"]) -> dict[str, float]:
    """Return the weight on the digit one frame earlier and later, and levels.

    Returns:
        mass, chance and digit as in `measure_profile`, summed over both
        neighboring frames; means over all queries on the digit.
    """
    frames = on.shape[1]
    times = torch.arange(frames)
    near = (times[:, None] - times).abs() == 1  # (T, T)
    marked = near[None, :, :, None] & on[:, None]  # (B, T, T, N)
    mass = (table * marked[:, :, None]).sum((3, 4))  # (B, T, N)
    counted = marked.sum((2, 3)).double()  # (B, T)
    levels = {
        "chance": counted / (frames * on.shape[2]),
        "digit": counted / on.sum((1, 2))[:, None],
    }
    means = {
        name: float(level[..., None].expand(on.shape)[on].mean())
        for name, level in levels.items()
    }
    return {"mass": float(mass[on].mean())} | means


def score_tables(model: VideoTransformer, chosen: Clips, clips: Clips) -> dict:
    """Return the truth scores of a model's best table.

    The table is chosen on other clips than those on which it is scored.
    """
    on, tables = find_digit_patches(chosen), read_tables(model, chosen)
    masses = {k: measure_neighbors(x, on)["mass"] for k, x in tables.items()}
    best = max(masses, key=lambda name: masses[name])
    on, tables = find_digit_patches(clips), read_tables(model, clips)
    return {
        "best": best,
        "neighbors": measure_neighbors(tables[best], on),
        "profile": measure_profile(tables[best], on),
        "masses": {k: measure_neighbors(x, on)["mass"] for k, x in tables.items()},
    }


def run_kind(kind: str, seed: int) -> dict:
    """Return a row of the record: a model trained with one seed."""
    rng = torch.Generator().manual_seed(10**6)
    clips, chosen = (
        draw_moving_clips("test", MOTION_TESTED, rng),
        draw_moving_clips("train", SELECTED, rng),
    )
    mixed = shuffle_frames(clips.frames, rng)
    model = build_transformer(kind, seed)
    row: dict = {"parameters": count_parameters(model)}
    row["untrained"] = score_tables(model, chosen, clips)["neighbors"]
    train_transformer(model, seed)
    return row | {
        "accuracy": compute_accuracy(model, clips.frames, clips.label),
        "accuracy_shuffled": compute_accuracy(model, mixed, clips.label),
        "trained": score_tables(model, chosen, clips),
    }


@recorded(
    on_cpu=True,
    seeds=SEEDS,
    frames=MOTION_FRAMES,
    size=MOTION_SIZE,
    patch=PATCH,
    speed=SPEED,
    steps=MOTION_STEPS,
    batch=MOTION_BATCH,
    tested=MOTION_TESTED,
)
def space_time_motion() -> dict:
    """Record which attention over clips finds the direction of a motion.

    The three models have equally many parameters and differ in which patches
    their two attentions compare. The truth is where the digit is in each frame: the
    weight that queries on the digit give to the digit's patches one frame earlier
    or later is compared with chance.
    """
    return {"rows": sweep(run_kind, seed=SEEDS, kind=KINDS)}
