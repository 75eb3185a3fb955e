"""Which heads of a trained model can go, one at a time and then greedily.

Source: Michel et al. (2019), sections 3 and 4,
    https://arxiv.org/abs/1905.10650. Departure: the greedy order is found by
    removing every remaining head in turn, not from gradients.
Axes: H heads
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
from torch import nn

from attnbook.training import associative_recall
from attnbook.training.tasks import compute_error_rate, count_errors_by_length
from attnbook.training.trained import load_trained
from workshop.experiments.device import get_device
from workshop.experiments.heads import SEEDS, STEPS, build_model
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment

Found = TypeVar("Found")
CHOICE_WORDS = 1000  # held-out words on which the next head is chosen
CHOICE_SEED = 2 * 10**6  # of the tables on which it is chosen


def make_pruned_measure(
    output: nn.Linear,
    heads: int,
    gone: set[int],
    measure: Callable[[], Found],
) -> Found:
    """Return a measure with some heads' columns of W_output set to 0."""
    kept = output.weight.detach().clone()
    try:
        with torch.no_grad():
            columns = output.weight.unflatten(1, (heads, -1))
            columns[:, sorted(gone)] = 0
        return measure()
    finally:
        with torch.no_grad():
            output.weight.copy_(kept)


def prune_greedily(
    output: nn.Linear,
    heads: int,
    choose: Callable[[], float],
    test: Callable[[], float],
) -> dict[str, list]:
    """Return test errors with each head gone, and of a greedy removal.

    Args:
        output: the output projection.
        heads: H.
        choose: the error that decides which head is removed next.
        test: the error that is reported.
    """
    without = partial(make_pruned_measure, output, heads)
    gone: set[int] = set()
    curve = [{"gone": [], "choice_error": choose(), "error": test()}]
    while len(gone) < heads:
        left = [h for h in range(heads) if h not in gone]
        found = {h: without(gone | {h}, choose) for h in left}
        best = min(found, key=found.__getitem__)
        gone.add(best)
        curve.append(
            {
                "gone": sorted(gone),
                "choice_error": found[best],
                "error": without(gone, test),
            }
        )
    alone = [without({h}, test) for h in range(heads)]
    return {"alone": alone, "curve": curve}


def prune_pronunciation(seed: int, heads: int) -> dict:
    """Return what removing heads costs a word-to-phoneme model.

    Heads are chosen on held-out words; all errors are those of the whole test
    set.
    """
    model, data, _ = load_trained(f"cmudict_heads_{heads}_{seed}")
    model.to(get_device())

    def measure(pairs) -> float:
        found = data.generate(model, pairs)
        generated = [data.targets.decode(f.ids) for f in found]
        return compute_error_rate(count_errors_by_length(generated, pairs))

    pruned = prune_greedily(
        model.decoder.attention.attention.output,
        heads,
        lambda: measure(data.splits.valid[:CHOICE_WORDS]),
        lambda: measure(data.splits.test),
    )
    return {"seed": seed, "test_words": len(data.splits.test), **pruned}


def prune_lookups(seed: int, heads: int) -> dict:
    """Return what removing heads costs a model of several lookups."""
    model = build_model(seed, heads)
    associative_recall.train(model, STEPS, seed)
    pruned = prune_greedily(
        model.attention.output,
        heads,
        lambda: associative_recall.compute_error_rate(model, seed=CHOICE_SEED),
        lambda: associative_recall.compute_error_rate(model),
    )
    return {"seed": seed, **pruned}


@experiment()
@recorded(seeds=SEEDS)
def heads_pruning() -> dict:
    """Record what removing heads costs three trained models of two tasks."""
    return {
        "words": [prune_pronunciation(seed, heads=8) for seed in SEEDS],
        "choice_words": CHOICE_WORDS,
        "lookups": [prune_lookups(seed, heads=8) for seed in SEEDS],
    }
