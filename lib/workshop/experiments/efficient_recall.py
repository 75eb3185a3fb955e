"""Multi-query associative recall: how many pairs can a memory hold?

A sequence contains pairs of a key and a value and then every key once more, in
another order; the value is to be predicted at each of them.

Source: Arora et al. (2024), section 3, https://arxiv.org/abs/2312.04927.
    Departures: all queries come after all pairs, without other symbols between
    them; one model is trained on all numbers of pairs.
Axes: B batch, N pairs, T = 3N positions
"""

import torch
from jaxtyping import Int
from torch import Tensor, nn

from attnbook.models.devices import find_device
from attnbook.models.sequence_mixers import MIXERS, WINDOW
from attnbook.training.losses import IGNORED_TARGET, compute_next_token_loss
from workshop.experiments.efficient_methods import (
    Batch,
    Study,
    record_study,
)
from workshop.experiments.registry import experiment

KEYS, VALUES = 128, 64
PAIRS = (4, 8, 16, 32, 64)
STEPS, TOKENS, TESTED = 600, 1536, 128  # tokens of a batch, test sequences
SIZES = {"symbols": KEYS + VALUES, "width": 64, "heads": 4, "hidden": 128}


def draw_pairs(
    count: int, pairs: int, rng: torch.Generator
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Return sequences, and the value to predict at each query.

    Symbols below KEYS are keys; those of a sequence are all different.
    """
    order = torch.rand(count, KEYS, generator=rng).argsort(dim=1)
    keys = order[:, :pairs]
    values = KEYS + torch.randint(VALUES, (count, pairs), generator=rng)
    shuffled = torch.rand(count, pairs, generator=rng).argsort(dim=1)
    stored = torch.stack([keys, values], dim=-1).flatten(1)
    ids = torch.cat([stored, keys.gather(1, shuffled)], dim=1)
    wanted = torch.full_like(ids, IGNORED_TARGET)
    wanted[:, 2 * pairs :] = values.gather(1, shuffled)
    return ids, wanted


def draw_batch(rng: torch.Generator) -> Batch:
    """Return sequences of one number of pairs, with equally many tokens."""
    pairs = PAIRS[int(torch.randint(len(PAIRS), (), generator=rng))]
    return draw_pairs(TOKENS // (3 * pairs), pairs, rng)


def draw_test(seed: int, pairs: int, model: nn.Module) -> Batch:
    """Return sequences that no training uses, on the model's device."""
    rng = torch.Generator().manual_seed(10**6 + seed)
    ids, wanted = draw_pairs(TESTED, pairs, rng)
    return ids.to(find_device(model)), wanted.to(find_device(model))


def validate(model: nn.Module) -> float:
    """Return the mean cross-entropy (nats) over all numbers of pairs."""
    losses = []
    for pairs in PAIRS:
        ids, wanted = draw_test(1, pairs, model)
        losses.append(float(compute_next_token_loss(model(ids), wanted)))
    return sum(losses) / len(losses)


def measure_accuracy(model: nn.Module) -> dict[str, list[float]]:
    """Return the share of values predicted, for each number of pairs."""
    found = []
    for pairs in PAIRS:
        ids, wanted = draw_test(0, pairs, model)
        right = model(ids).argmax(-1) == wanted
        found.append(float(right[wanted != IGNORED_TARGET].double().mean()))
    return {"accuracy": found}


def compute_guessing_accuracy(pairs: int) -> float:
    """Return the expected share of right guesses among the values stored.

    The best guess without the key is the value that occurs most often in the
    sequence; its share is estimated on 20,000 sequences.
    """
    rng = torch.Generator().manual_seed(0)
    values = torch.randint(VALUES, (20_000, pairs), generator=rng)
    counts = torch.zeros(len(values), VALUES)
    counts.scatter_add_(1, values, torch.ones(values.shape))
    return float(counts.amax(1).double().mean() / pairs)


STUDY = Study(
    SIZES,
    STEPS,
    draw_batch,
    validate,
    measure_accuracy,
    longer=("linear", "delta", "gated delta"),
)


@experiment()
def efficient_recall() -> dict:
    """Record the accuracy of every method by the number of pairs."""
    chance = {
        "any value": 1 / VALUES,
        "a value of the sequence": [compute_guessing_accuracy(n) for n in PAIRS],
    }
    return record_study(
        "efficient_recall",
        STUDY,
        MIXERS,
        {"chance": chance, "state_numbers": count_state_numbers()},
        pairs=list(PAIRS),
        tokens=TOKENS,
        tested=TESTED,
        keys=KEYS,
        values=VALUES,
    )


def count_state_numbers() -> dict[str, list[int]]:
    """Return the numbers that a layer keeps after all pairs, for decoding."""
    width, heads = SIZES["width"], SIZES["heads"]
    memory = width * width // heads
    return {
        "full": [4 * n * width for n in PAIRS],
        "window": [2 * min(2 * n, WINDOW) * width for n in PAIRS],
        "linear": [memory + width] * len(PAIRS),
        "delta": [memory] * len(PAIRS),
        "gated delta": [memory] * len(PAIRS),
    }
