"""What SmolLM2 loses without some of its heads: copying, and ordinary text.

Heads are chosen by the scores of the record `smollm2_heads`; the losses are
measured on other random tokens. Sets of heads are compared with random sets
that have as many heads in each layer.

Source: Michel et al. (2019), section 3, https://arxiv.org/abs/1905.10650;
    induction heads without which copying fails: Olsson et al. (2022),
    https://arxiv.org/abs/2209.11895
Axes: L layers, B sequences, H heads, T positions, D width of a head's output
"""

from collections import Counter
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.models.head_edits import (
    Head,
    ablate_heads,
    average_outputs,
    record_heads,
)
from attnbook.models.modern_decoder import ModernDecoder
from attnbook.models.smollm2 import load_smollm2, load_smollm2_tokenizer
from attnbook.records import read_record
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment
from workshop.experiments.smollm2_heads import tabulate
from workshop.experiments.smollm2_inputs import (
    LENGTHS,
    cut_texts,
    draw_batches,
    list_block_inputs,
    measure_copying,
    measure_text,
)
from workshop.experiments.smollm2_text import SMOLLM2

SINGLE_SEED, SET_SEED, MEAN_SEED = 100, 200, 300
SINGLE_EACH, SET_EACH, MEAN_EACH = 1, 4, 2  # sequences of each length
SET_TEXTS, LENGTH = 8, 64
SIZES = (1, 2, 4, 8, 16, 32)
SIZE, DRAWS = 8, 5

Means = Sequence[Float[Tensor, "H D"]]


@torch.no_grad()
def compute_means(model: ModernDecoder, batches: Sequence[Int[Tensor, "_ _"]]) -> Means:
    """Return the mean output of every head over all positions."""
    with record_heads(model) as outputs:
        for ids in batches:
            list_block_inputs(model, ids)
    return average_outputs(outputs)


@torch.no_grad()
def measure_singles(
    model: ModernDecoder, copies: Sequence[Int[Tensor, "_ _"]], means: Means
) -> dict:
    """Return how much the loss of each sequence rises without one head.

    Blocks below the head are not run again.

    Returns:
        `zero` and `mean` (L, H, sequences): differences in nats, with zeros
        and with means in place of the head's output; `whole`, the losses of
        the whole model.
    """
    layers, heads = len(model.blocks), model.config.heads
    inputs = [list_block_inputs(model, ids) for ids in copies]

    def copy(layer: int) -> Tensor:
        found = [
            measure_copying(model, ids, x[layer], layer)[0]
            for ids, x in zip(copies, inputs, strict=True)
        ]
        return torch.cat(found)

    whole = copy(0)
    rise: dict[str, list[Tensor]] = {"zero": [], "mean": []}
    for layer in range(layers):
        for head in range(heads):
            for name, used in (("zero", None), ("mean", means)):
                with ablate_heads(model, [(layer, head)], used):
                    rise[name].append(copy(layer) - whole)
    tables = {
        name: tabulate(torch.stack(x).unflatten(0, (layers, heads)))
        for name, x in rise.items()
    }
    return tables | {"whole": tabulate(whole)}


def rank_heads(scores: Float[Tensor, "L H"]) -> list[Head]:
    """Return all heads, the one with the highest score first."""
    order = scores.flatten().argsort(descending=True).tolist()
    return [divmod(n, scores.shape[1]) for n in order]


def draw_others(
    chosen: Sequence[Head], heads: int, seed: int, avoid: Sequence[Head] = ()
) -> list[Head]:
    """Return as many random other heads of each layer as are chosen.

    Args:
        chosen: heads that are not drawn.
        heads: H.
        seed: of the draw.
        avoid: further heads that are not drawn, where a layer has enough.

    Raises:
        ValueError: if a layer has too few other heads.
    """
    generator = torch.Generator().manual_seed(seed)
    found: list[Head] = []
    for layer, count in Counter(layer for layer, _ in chosen).items():
        others = [h for h in range(heads) if (layer, h) not in chosen]
        if len(others) < count:
            raise ValueError(
                f"layer {layer} has {len(others)} other heads, not {count}"
            )
        good = [h for h in others if (layer, h) not in avoid]
        others = good if len(good) >= count else others
        order = torch.randperm(len(others), generator=generator)[:count]
        found += [(layer, others[n]) for n in order.tolist()]
    return found


@torch.no_grad()
def measure_set(
    model: ModernDecoder,
    heads: Sequence[Head],
    copies: Sequence[Int[Tensor, "_ _"]],
    texts: Int[Tensor, "_ _"],
    means: Means | None = None,
) -> dict:
    """Return losses and accuracy of a model without a set of heads."""
    with ablate_heads(model, heads, means):
        found = [measure_copying(model, ids) for ids in copies]
        loss, accuracy = (torch.cat(x) for x in zip(*found, strict=True))
        text = measure_text(model, texts)
    return {
        "heads": [list(head) for head in heads],
        "copy": tabulate(loss),
        "accuracy": tabulate(accuracy),
        "text": tabulate(text),
    }


def list_sets(heads: int) -> list[dict]:
    """Return the sets that are compared: name, ablation, and heads."""
    scores = {
        name: torch.tensor(table)
        for name, table in read_record("smollm2_heads")["results"]["scores"].items()
    }
    induction = rank_heads(scores["induction"])
    previous = rank_heads(scores["previous"])
    best, before = induction[:SIZE], previous[:SIZE]
    rows: list[dict] = [{"name": "whole", "set": []}]
    rows += [{"name": "induction", "set": induction[:n]} for n in SIZES]
    rows.append({"name": "induction", "set": best, "mean": True})
    rows.append({"name": "previous", "set": before})
    for draw in range(DRAWS):
        others = draw_others(best, heads, draw, induction[: 2 * SIZE])
        rows.append({"name": "random", "set": others})
        if draw < 3:
            rows.append({"name": "random", "set": others, "mean": True})
            others = draw_others(before, heads, draw, previous[: 2 * SIZE])
            rows.append({"name": "random, previous", "set": others})
    return rows


SEEDS = [
    *range(SINGLE_SEED, SINGLE_SEED + SINGLE_EACH * len(LENGTHS)),
    *range(SET_SEED, SET_SEED + SET_EACH * len(LENGTHS)),
    *range(MEAN_SEED, MEAN_SEED + MEAN_EACH * len(LENGTHS)),
]


@experiment(on_cpu=True)
@recorded(
    seeds=SEEDS,
    **SMOLLM2,
)
def smollm2_ablation() -> dict:
    """Record the losses without each head, and without sets of heads."""
    model, tokenizer = load_smollm2(), load_smollm2_tokenizer()
    symbols = model.config.symbols
    texts = cut_texts(tokenizer, SET_TEXTS, LENGTH)
    copies = draw_batches(SET_SEED, symbols, SET_EACH)
    means = compute_means(model, draw_batches(MEAN_SEED, symbols, MEAN_EACH))
    rows = []
    for row in list_sets(model.config.heads):
        used = means if row.get("mean") else None
        found = measure_set(model, row["set"], copies, texts, used)
        rows.append({"name": row["name"], "mean": bool(row.get("mean"))} | found)
    singles = measure_singles(
        model,
        draw_batches(SINGLE_SEED, symbols, SINGLE_EACH),
        means,
    )
    return {"sets": rows, "singles": singles}
