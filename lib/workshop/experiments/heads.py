"""Heads: how many, what reads their averages, which can share or go.

Axes: B batch, S items, H query heads, G groups, D width of a head, C model width
"""

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import TypeVar

import torch
from torch import Tensor, nn

from attnbook.attention.multi_head import GroupedQueryAttention
from attnbook.diagnose import entropy, head_similarity
from attnbook.models import associative_recall as task
from attnbook.models.devices import find_device, use_seed
from attnbook.models.encoder_decoder import count_parameters
from attnbook.training.associative_recall import (
    compute_error_rates,
    train,
)
from attnbook.training.run import load_trained
from attnbook.training.tasks import compute_error_rate, count_errors_by_length
from workshop.experiments.machine import get_device
from workshop.experiments.record import recorded, sweep

SEEDS, STEPS = (0, 1, 2), 600
COUNTS = (1, 2, 4, 8, 16, 32, 64)
WIDTH = 64


def build_model(seed: int, heads: int, **settings) -> task.AssociativeRecallModel:
    """Return a model with the first weights that a seed gives."""
    with use_seed(seed):
        return task.AssociativeRecallModel(heads, **settings).to(get_device())


@torch.no_grad()
def measure_similarity(model: task.AssociativeRecallModel) -> dict:
    """Return mean cosine of two heads, mean entropy, on tables unseen."""
    tables = task.draw_tables(2000, torch.Generator().manual_seed(10**6))
    _, weights = model(tables.to(find_device(model)))
    like = head_similarity(weights[:, :, None])
    off = ~torch.eye(len(like), dtype=torch.bool, device=like.device)
    return {
        "similarity": float(like[off].mean()) if off.any() else None,
        "largest_similarity": float(like[off].max()) if off.any() else None,
        "entropy": float(entropy(weights).mean()),
    }


@recorded(seeds=SEEDS)
def heads_lookups() -> dict:
    """Record errors by number of heads, at equal parameters."""
    rows = []
    for heads in COUNTS:
        for seed in SEEDS:
            model = build_model(seed, heads)
            train(model, STEPS, seed)
            by_place = compute_error_rates(model)
            found = {
                "error": float(by_place.mean()),
                "by_place": by_place.tolist(),
                **measure_similarity(model),
            }
            rows.append({"heads": heads, "seed": seed, **found})
    return {
        "rows": rows,
        "parameters": count_parameters(model),
        "steps": STEPS,
        "width": 64,
    }


READOUT_STEPS, READOUT_RATE, READOUT_WIDTH = 4000, 3e-3, 512


def build_with_two_layer_readout(seed: int) -> task.AssociativeRecallModel:
    """Return a model with one head whose context is read by two layers."""
    model = build_model(seed, 1)
    with use_seed(seed):
        read = nn.Sequential(
            nn.Linear(WIDTH, READOUT_WIDTH),
            nn.ReLU(),
            nn.Linear(READOUT_WIDTH, task.QUERIES * task.SYMBOLS),
        )
    model.answer = read.to(get_device())  # type: ignore[assignment]
    return model


@torch.no_grad()
def measure_weights_by_place(model: task.AssociativeRecallModel) -> list[float]:
    """Return the mean weight on the item of each place, on tables unseen."""
    tables = task.draw_tables(2000, torch.Generator().manual_seed(10**6))
    tables = tables.to(find_device(model))
    _, weights = model(tables)
    there = tables.addresses[:, None] == tables.queries[:, :, None]  # (B, N, S)
    return (weights * there).sum(-1).mean(0).tolist()


@recorded(seeds=SEEDS, steps=READOUT_STEPS, rate=READOUT_RATE, hidden=READOUT_WIDTH)
def heads_readout() -> dict:
    """Record four lookups by one head whose average is read in two ways."""

    def measure(readout: str, seed: int) -> dict:
        if readout == "two layers":
            model = build_with_two_layer_readout(seed)
        else:
            model = build_model(seed, 1)
        train(model, READOUT_STEPS, seed, READOUT_RATE)
        by_place = compute_error_rates(model)
        return {
            "error": float(by_place.mean()),
            "by_place": by_place.tolist(),
            "weights": measure_weights_by_place(model),
            "parameters": count_parameters(model),
        }

    return {
        "rows": sweep(measure, readout=("one linear layer", "two layers"), seed=SEEDS)
    }


# H, G and D. The parameters of the projections are 2 C D (H + G), the numbers
# cached for each item 2 G D.
SETTINGS = {
    "equal parameters": [(8, 8, 8), (12, 4, 8), (14, 2, 8), (15, 1, 8)],
    "equal cache": [
        (1, 1, 16), (2, 2, 8), (4, 4, 4), (8, 2, 8), (8, 1, 16),
    ],
}  # fmt: skip


class FreeWidthAttention(GroupedQueryAttention):
    """Grouped-query attention without biases whose head width is free."""

    def __init__(self, width: int, heads: int, groups: int, columns: int):
        super().__init__(heads * columns, heads, groups, bias=False)
        self.query = nn.Linear(width, heads * columns, bias=False)
        self.key = nn.Linear(width, groups * columns, bias=False)
        self.value = nn.Linear(width, groups * columns, bias=False)
        self.output = nn.Linear(heads * columns, width, bias=False)


class SharedLookupModel(task.AssociativeRecallModel):
    """The model of several lookups with attention of any H, G and D."""

    def __init__(self, heads: int, groups: int, columns: int):
        super().__init__(1, WIDTH)
        self.attention = FreeWidthAttention(WIDTH, heads, groups, columns)


class TwoHeadSizesModel(SharedLookupModel):
    """Two queries name an item by its address, two by its position.

    The task is the same; only what the model reads differs.
    """

    def __init__(self, heads: int, groups: int, columns: int):
        super().__init__(heads, groups, columns)
        self.position = nn.Embedding(task.ITEMS, WIDTH)

    def forward(self, tables: task.LookupTables) -> tuple[Tensor, Tensor]:
        """Return logits of each answer, and each head's weights."""
        positions = torch.arange(task.ITEMS, device=tables.addresses.device)
        items = self.address(tables.addresses) + self.symbol(tables.symbols)
        items = items + self.position(positions)
        found = tables.addresses[:, None] == tables.queries[:, 2:, None]
        asked = [*tables.queries[:, :2].unbind(1)]
        asked += found.int().argmax(-1).unbind(1)
        parts = zip(self.query_embeddings, asked, strict=True)
        question = sum(embed(which) for embed, which in parts)[:, None]
        context, weights = self.attention(question, items, need_weights=True)
        logits = self.answer(context[:, 0])
        return logits.unflatten(1, (task.QUERIES, -1)), weights[:, :, 0]


MODELS = {"one kind of key": SharedLookupModel, "two kinds": TwoHeadSizesModel}


@recorded(seeds=SEEDS)
def heads_shared() -> dict:
    """Record errors of multi-head, grouped-query and multi-query attention.

    Source: Ainslie et al. (2023), section 2.2, https://arxiv.org/abs/2305.13245;
        one group: Shazeer (2019), section 3, https://arxiv.org/abs/1911.02150.
        Departure: the width of a head is chosen freely, so that parameters or cache
        can be held equal.
    """

    def measure(task: str, setting: tuple[int, int, int], seed: int) -> dict:
        with use_seed(seed):
            model = MODELS[task](*setting).to(get_device())
        train(model, STEPS, seed)
        return {
            "parameters": count_parameters(model.attention),
            "cache": 2 * setting[1] * setting[2],
            "error": float(compute_error_rates(model).mean()),
        }

    settings = dict.fromkeys(chain(*SETTINGS.values()))
    rows = sweep(measure, task=MODELS, setting=settings, seed=SEEDS)
    return {"rows": rows, "settings": SETTINGS, "steps": STEPS}


Found = TypeVar("Found")
CHOICE_WORDS = 1000  # held-out words on which the next head is chosen
CHOICE_SEED = 2 * 10**6  # of the tables on which it is chosen


def make_pruned_measure(
    output: nn.Linear, heads: int, gone: set[int], measure: Callable[[], Found]
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
    """Return test errors with each head gone, and of a greedy removal."""
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
        table = count_errors_by_length(generated, pairs)
        return compute_error_rate(table)

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
    train(model, STEPS, seed)
    pruned = prune_greedily(
        model.attention.output,
        heads,
        lambda: float(compute_error_rates(model, seed=CHOICE_SEED).mean()),
        lambda: float(compute_error_rates(model).mean()),
    )
    return {"seed": seed, **pruned}


@recorded(seeds=SEEDS)
def heads_pruning() -> dict:
    """Record what removing heads costs three trained models of two tasks.

    Source: Michel et al. (2019), sections 3 and 4,
        https://arxiv.org/abs/1905.10650. Departure: the greedy order is found by
        removing every remaining head in turn, not from gradients.
    """
    return {
        "words": [prune_pronunciation(seed, heads=8) for seed in SEEDS],
        "choice_words": CHOICE_WORDS,
        "lookups": [prune_lookups(seed, heads=8) for seed in SEEDS],
    }
