"""Efficient attention trained on three tasks: a rate for each method, three seeds.

With the first seed each method is trained at every rate, and the rate with the
smallest validation loss is its own; with the other seeds it is trained at that
rate only. Held-out measures are taken on other data than the validation loss.

Axes: B batch, H heads, T positions, N pairs
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from attnbook.data.libreoffice import encode_characters
from attnbook.models.devices import use_seed
from attnbook.training.language_modeling import compute_held_out_loss, cut_windows
from attnbook.training.loop import (
    IGNORED_TARGET,
    compute_next_token_loss,
    compute_rate_factor,
    optimize,
)
from workshop.experiments.positions import (
    LENGTH,
    SYMBOLS,
    draw_batch,
    draw_copying,
    draw_windows,
    measure_copying_error,
)
from workshop.experiments.record import recorded
from workshop.experiments.sequence_mixers import (
    HEADS,
    MIXERS,
    WIDTH,
    WINDOW,
    MixerModel,
)

RATES, SEEDS = (3e-3, 1e-2, 3e-2), (0, 1, 2)
WARMUP, CLIP = 0.1, 1.0
Batch = tuple[Tensor, Tensor]  # ids, and what should be predicted


@dataclass(frozen=True)
class Study:
    """A task on which all methods are trained alike."""

    symbols: int
    steps: int
    draw: Callable[[torch.Generator], Batch]
    validate: Callable[[MixerModel], float]
    measure: Callable[[MixerModel], dict[str, Any]]


def train_and_measure(study: Study, method: str, rate: float, seed: int) -> dict:
    """Return a row: the training, its validation loss, its measures."""
    with use_seed(seed):
        model = MixerModel(study.symbols, method)
    rng = torch.Generator().manual_seed(seed)
    optimize(
        torch.optim.Adam(model.parameters(), lr=rate),
        (study.draw(rng) for _ in range(study.steps)),
        lambda batch: compute_next_token_loss(model(batch[0]), batch[1]),
        lambda step: rate * compute_rate_factor((step + 1) / study.steps, WARMUP),
        CLIP,
    )
    model.eval()
    row = {"method": method, "rate": rate, "seed": seed}
    with torch.no_grad():
        return row | {"valid_loss": study.validate(model), **study.measure(model)}


def train_method(study: Study, method: str) -> list[dict]:
    """Return a row for each training of a method; `chosen` marks its rate."""
    first, *others = SEEDS
    rows = [train_and_measure(study, method, rate, first) for rate in RATES]
    best = min(rows, key=lambda row: row["valid_loss"])["rate"]
    rows += [train_and_measure(study, method, best, seed) for seed in others]
    return [{**row, "chosen": row["rate"] == best} for row in rows]


def train_all(study: Study) -> dict:
    return {"rows": [row for method in MIXERS for row in train_method(study, method)]}


KEYS, VALUES = 128, 64
PAIRS = (4, 8, 16, 32, 64)
RECALL_STEPS = 600
TOKENS, RECALL_TESTED = 1536, 128  # of a batch; test sequences


def draw_pairs(
    count: int, pairs: int, rng: torch.Generator
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Return sequences, and the value to predict at each query."""
    order = torch.rand(count, KEYS, generator=rng).argsort(dim=1)
    keys = order[:, :pairs]
    values = KEYS + torch.randint(VALUES, (count, pairs), generator=rng)
    shuffled = torch.rand(count, pairs, generator=rng).argsort(dim=1)
    stored = torch.stack([keys, values], dim=-1).flatten(1)
    ids = torch.cat([stored, keys.gather(1, shuffled)], dim=1)
    wanted = torch.full_like(ids, IGNORED_TARGET)
    wanted[:, 2 * pairs :] = values.gather(1, shuffled)
    return ids, wanted


def draw_recall_batch(rng: torch.Generator) -> Batch:
    pairs = PAIRS[int(torch.randint(len(PAIRS), (), generator=rng))]
    return draw_pairs(TOKENS // (3 * pairs), pairs, rng)


def draw_test(seed: int, pairs: int) -> Batch:
    rng = torch.Generator().manual_seed(10**6 + seed)
    return draw_pairs(RECALL_TESTED, pairs, rng)


def validate_recall(model: nn.Module) -> float:
    """Return the mean cross-entropy (nats) over all numbers of pairs."""
    losses = []
    for pairs in PAIRS:
        ids, wanted = draw_test(1, pairs)
        losses.append(float(compute_next_token_loss(model(ids), wanted)))
    return sum(losses) / len(losses)


def measure_accuracy(model: nn.Module) -> dict[str, list[float]]:
    """Return the share of values predicted, for each number of pairs."""
    found = []
    for pairs in PAIRS:
        ids, wanted = draw_test(0, pairs)
        right = model(ids).argmax(-1) == wanted
        found.append(float(right[wanted != IGNORED_TARGET].double().mean()))
    return {"accuracy": found}


def compute_guessing_accuracy(pairs: int) -> float:
    """Return the expected share of right guesses among the values stored."""
    rng = torch.Generator().manual_seed(0)
    values = torch.randint(VALUES, (20_000, pairs), generator=rng)
    counts = torch.zeros(len(values), VALUES)
    counts.scatter_add_(1, values, torch.ones(values.shape))
    return float(counts.amax(1).double().mean() / pairs)


RECALL = Study(
    KEYS + VALUES, RECALL_STEPS, draw_recall_batch, validate_recall, measure_accuracy
)


@recorded(seeds=SEEDS, pairs=PAIRS)
def efficient_recall() -> dict:
    """Record the accuracy of every method by the number of pairs.

    A sequence contains pairs of a key and a value and then every key once more, in
    another order; the value is to be predicted at each of them.

    Source: Arora et al. (2024), section 3, https://arxiv.org/abs/2312.04927.
        Departures: all queries come after all pairs, without other symbols between
        them; one model is trained on all numbers of pairs.
    """
    chance = {"a value of the sequence": [*map(compute_guessing_accuracy, PAIRS)]}
    more = {"chance": chance, "state_numbers": count_state_numbers()}
    return train_all(RECALL) | more


def count_state_numbers() -> dict[str, list[int]]:
    """Return the numbers that a layer keeps after all pairs, for decoding."""
    memory = WIDTH * WIDTH // HEADS
    return {
        "full": [4 * n * WIDTH for n in PAIRS],
        "window": [2 * min(2 * n, WINDOW) * WIDTH for n in PAIRS],
        "linear": [memory + WIDTH] * len(PAIRS),
        "delta": [memory] * len(PAIRS),
        "gated delta": [memory] * len(PAIRS),
    }


COPY_TIMES, COPY_STEPS, COPY_TESTED = (1, 2, 4), 500, 64


def validate_copying(model: nn.Module) -> float:
    rng = torch.Generator().manual_seed(10**6 + 1)
    ids, wanted = draw_copying(COPY_TESTED, LENGTH // 2, rng)
    return float(compute_next_token_loss(model(ids), wanted))


def measure_errors(model: nn.Module) -> dict[str, list[float]]:
    lengths = [LENGTH * times for times in COPY_TIMES]
    return {"error": [measure_copying_error(model, n, COPY_TESTED) for n in lengths]}


draw_copies = partial(draw_batch, "copy")
COPYING = Study(SYMBOLS + 1, COPY_STEPS, draw_copies, validate_copying, measure_errors)


@recorded(seeds=SEEDS)
def efficient_copying() -> dict:
    """Record the share of symbols copied wrong, by method and length.

    The task is that of chapter 8: different symbols, a mark, and the same again.

    Source: copying as what a memory of a fixed size cannot do: Jelassi et
        al. (2024), section 3, https://arxiv.org/abs/2402.01032; the experiment is
        ours.
    """
    return train_all(COPYING)


TEXT_LENGTH, TEXT_BATCH, TEXT_STEPS, TEXT_TESTED = 256, 8, 400, 128


def measure_losses(model: MixerModel) -> dict[str, float]:
    """Return the loss on evenly spread windows of the test text, in nats."""
    gap = (len(encode_characters("test")[0]) - TEXT_LENGTH - 1) // TEXT_TESTED
    ids, wanted = cut_windows("test", gap * torch.arange(TEXT_TESTED), TEXT_LENGTH)
    return {"loss": float(compute_next_token_loss(model(ids), wanted))}


@recorded(seeds=SEEDS)
def efficient_language_model() -> dict:
    """Record the loss of every method on held-out text."""
    study = Study(
        encode_characters("train")[1],
        TEXT_STEPS,
        partial(draw_windows, TEXT_BATCH, TEXT_LENGTH),
        lambda model: compute_held_out_loss(model, "valid", TEXT_LENGTH, TEXT_TESTED),
        measure_losses,
    )
    return train_all(study)
