"""Copying at 1, 2 and 4 times the trained length, by every efficient method.

The task is that of chapter 8: different symbols, a mark, and the same again.

Source: copying as what a memory of a fixed size cannot do: Jelassi et
    al. (2024), section 3, https://arxiv.org/abs/2402.01032; the experiment is
    ours.
Axes: B batch, T positions
"""

import torch
from torch import nn

from attnbook.models.devices import find_device
from attnbook.models.sequence_mixers import MIXERS
from attnbook.training.losses import compute_next_token_loss
from workshop.experiments.efficient_methods import (
    Batch,
    Study,
    record_study,
)
from workshop.experiments.longer_sequences import (
    LENGTH,
    SYMBOLS,
    draw_batch,
    draw_copying,
    measure_copying_error,
)
from workshop.experiments.registry import experiment

TIMES, STEPS, TESTED = (1, 2, 4), 500, 64
METHODS = (*MIXERS, "full, rotary")
SIZES = {"symbols": SYMBOLS + 1, "width": 64, "heads": 4, "hidden": 128}


def draw_copies(rng: torch.Generator) -> Batch:
    """Return a batch to train on; none is longer than LENGTH."""
    return draw_batch("copy", rng)


def validate(model: nn.Module) -> float:
    """Return the cross-entropy (nats) at the trained length."""
    rng = torch.Generator().manual_seed(10**6 + 1)
    made = draw_copying(TESTED, LENGTH // 2, rng)
    ids, wanted = (x.to(find_device(model)) for x in made)
    return float(compute_next_token_loss(model(ids), wanted))


def measure_errors(model: nn.Module) -> dict[str, list[float]]:
    """Return the share of symbols copied wrong at each length."""
    return {
        "error": [
            measure_copying_error(model, LENGTH * times, TESTED) for times in TIMES
        ]
    }


STUDY = Study(SIZES, STEPS, draw_copies, validate, measure_errors)


@experiment()
def efficient_copying() -> dict:
    """Record the share of symbols copied wrong, by method and length."""
    return record_study(
        "efficient_copying",
        STUDY,
        METHODS,
        {},
        length=LENGTH,
        times=list(TIMES),
        tested=TESTED,
        chance=1 - 1 / SYMBOLS,
    )
