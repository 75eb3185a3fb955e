"""Which heads of a trained model can go, one at a time and then greedily.

Source: Michel et al. (2019), sections 3 and 4,
    https://arxiv.org/abs/1905.10650. Departure: the greedy order is found by
    removing every remaining head in turn, not from gradients.
Axes: H heads
"""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from attnbook.training import multi_lookup
from attnbook.training.tasks import count_errors_by_length, error_rate
from attnbook.training.trained import load_trained
from workshop.experiments.device import get_device
from workshop.experiments.heads import SEEDS, STEPS, build_model
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment

Found = TypeVar("Found")


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
    output: nn.Linear, heads: int, measure: Callable
) -> tuple[list, list]:
    """Return errors with each head gone, and the curve of a greedy removal."""
    alone = [
        make_pruned_measure(output, heads, {h}, measure) for h in range(heads)
    ]
    gone: set[int] = set()
    curve = [{"gone": [], "error": measure()}]
    while len(gone) < heads:
        left = [h for h in range(heads) if h not in gone]
        found = {
            h: make_pruned_measure(output, heads, gone | {h}, measure)
            for h in left
        }
        best = min(found, key=found.__getitem__)
        gone.add(best)
        curve.append({"gone": sorted(gone), "error": found[best]})
    return alone, curve


@experiment()
@recorded(seeds=SEEDS)
def heads_pruning() -> dict:
    """Record what removing heads costs: of a speller, and of the lookups."""
    heads = 8
    model, data, _ = load_trained("cmudict_heads_8_0")
    model.to(get_device())
    # Chosen on held-out words; the curve is then read on test words.
    splits = {
        "chosen_on": data.splits.valid[:1000],
        "test": data.splits.test[:2000],
    }

    def wrong(pairs) -> float:
        found = data.generate(model, pairs)
        decoded = [data.targets.decode(f.ids) for f in found]
        return error_rate(count_errors_by_length(decoded, pairs))

    output = model.decoder.attention.attention.output
    alone, curve = prune_greedily(
        output, heads, lambda: wrong(splits["chosen_on"])
    )
    for point in curve:
        point["test_error"] = make_pruned_measure(
            output, heads, {*point["gone"]}, lambda: wrong(splits["test"])
        )
    lookups = {}
    for seed in SEEDS:
        toy = build_model(seed, heads)
        multi_lookup.train(toy, STEPS, seed)
        one, many = prune_greedily(
            toy.attention.output,
            heads,
            lambda toy=toy: multi_lookup.error_rate(toy),
        )
        lookups[str(seed)] = {"alone": one, "curve": many}
    return {
        "alone": alone,
        "curve": curve,
        "words": {k: len(v) for k, v in splits.items()},
        "lookups": lookups,
    }
