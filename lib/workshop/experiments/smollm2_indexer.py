"""A trained indexer for SmolLM2: how near does it come to the oracle?

Each layer gets a lightning indexer that learns the mean weights of the layer's
heads, while the model stays as it is. It then selects the keys of all heads,
in all layers at once, on passages that it was not trained on. The second stage
of DeepSeek's training, in which model and indexer adapt to the selection, is
left out.

Source: DeepSeek-AI (2025), DeepSeek-V3.2-Exp, section 2.1 (the dense warm-up),
    https://github.com/deepseek-ai/DeepSeek-V3.2-Exp. Departures: the smaller
    indexer, Adam with a linear decay of the learning rate, and 25,000
    symbols of text instead of 2.1 billion.
Axes: L layers, H heads, T positions, R queries
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnbook.attention.key_selection import select_top_keys
from attnbook.attention.lightning_indexer import (
    LightningIndexer,
    compute_indexer_loss,
)
from attnbook.models.encoder_decoder import count_parameters
from attnbook.models.modern_decoder import ModernDecoder
from attnbook.models.smollm2 import load_smollm2, load_smollm2_tokenizer
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment
from workshop.experiments.selected_attention import (
    Layer,
    SelectedAttention,
    measure_selection,
    select_in_chunks,
    set_selection,
)
from workshop.experiments.smollm2_keys import (
    Variant,
    keep_mean_blocks,
    keep_window,
    observe_weights,
)
from workshop.experiments.smollm2_text import (
    LENGTH,
    PASSAGES,
    SMOLLM2,
    TRAINING,
    cut_passage,
    list_sections,
    read_lines,
)

HEADS, SIZE = 4, 32
BATCHES = 12  # of the queries of a passage: one step of the optimizer each
RATE = 3e-3
SEED = 0


def build_indexers(model: ModernDecoder, seed: int) -> list[LightningIndexer]:
    """Return an indexer for each layer."""
    config = model.config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return [
            LightningIndexer(config.width, HEADS, SIZE, config.base)
            for _ in range(config.blocks)
        ]


def train_indexers(
    model: ModernDecoder,
    indexers: Sequence[LightningIndexer],
    passages: Sequence[Int[Tensor, "T"]],
    seed: int,
    rate: float = RATE,
) -> list[float]:
    """Train the indexers once on each passage; return the loss of each.

    The queries of a passage are divided at random into `BATCHES`. The loss is
    the mean over the layers, of each batch before its step.
    """
    rng = torch.Generator().manual_seed(seed)
    optimizers = [torch.optim.Adam(x.parameters(), rate) for x in indexers]
    losses: list[float] = []

    def learn(layer: Layer) -> Bool[Tensor, "T T"]:
        weights = layer.compute_weights()
        order = torch.randperm(len(layer.rows), generator=rng)
        for rows in order.chunk(BATCHES):
            with torch.enable_grad():
                scores = indexers[layer.number](layer.x, rows)
                loss = compute_indexer_loss(
                    scores, weights[:, :, rows], layer.causal[rows]
                )
            optimizers[layer.number].zero_grad()
            loss.backward()
            optimizers[layer.number].step()
            losses[-1] += float(loss.detach()) / BATCHES / len(indexers)
        return layer.causal

    set_selection(model, learn)
    for i, ids in enumerate(passages):
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = rate * (1 - i / len(passages))
        losses.append(0.0)
        run_blocks(model, ids)
    return losses


@torch.no_grad()
def run_blocks(model: ModernDecoder, ids: Int[Tensor, "T"]) -> None:
    """Run the blocks of a model on a passage, without computing logits."""
    x = model.embed(ids[None])
    for block in model.blocks:
        x, _ = block(x)


def keep_indexed(indexers: Sequence[LightningIndexer], count: int) -> Variant:
    """Return the keys with the largest scores of the layer's indexer."""

    def select(layer: Layer) -> Bool[Tensor, "B 1 R T"]:
        scores = indexers[layer.number](layer.x, layer.rows)
        return select_top_keys(scores, layer.causal, count)[:, None]

    name = f"indexer top {count}"
    return Variant(name, select_in_chunks(select), {"kind": "indexer"})


def keep_shared_top(count: int) -> Variant:
    """Return an oracle for all heads: the largest mean weights."""

    def select(layer: Layer) -> Bool[Tensor, "B 1 R T"]:
        mean = layer.compute_weights().mean(dim=1, keepdim=True)
        return select_top_keys(mean, layer.causal, count)

    name = f"shared oracle top {count}"
    return Variant(name, select_in_chunks(select), {"kind": "shared oracle"})


def list_variants(
    indexers: Sequence[LightningIndexer],
) -> list[tuple[int, Variant]]:
    """Return what is compared, and the number of keys at which it is.

    The record `smollm2_keys` has more variants on the same passages, among
    them 8 blocks of 16 keys by their mean keys.
    """
    return [
        (32, keep_shared_top(32)),
        (32, keep_indexed(indexers, 32)),
        (32, keep_mean_blocks(2)),
        (32, keep_window(31, 1)),
        (128, keep_shared_top(128)),
        (128, keep_indexed(indexers, 128)),
        (128, keep_window(127, 1)),
    ]


def cut_passages() -> tuple[list[Tensor], list[Tensor]]:
    """Return the passages to train on, in random order, and those measured."""
    tokenizer, lines = load_smollm2_tokenizer(), read_lines()
    starts = list_sections(len(lines), PASSAGES)
    training = [a + b for b in TRAINING for a in starts]
    rng = torch.Generator().manual_seed(SEED)
    order = torch.randperm(len(training), generator=rng).tolist()
    return (
        [cut_passage(tokenizer, lines, training[i]) for i in order],
        [cut_passage(tokenizer, lines, i) for i in starts],
    )


def measure_variants(
    model: ModernDecoder,
    passages: Sequence[Int[Tensor, "T"]],
    indexers: Sequence[LightningIndexer],
) -> list[dict]:
    """Return a row for each way to select keys."""
    variants = list_variants(indexers)
    seen = [
        observe_weights(model, ids, [v for _, v in variants])["kept_weight"]
        for ids in passages
    ]
    return [
        {"name": variant.name, "budget": budget}
        | variant.settings
        | measure_selection(model, passages, variant.select)
        | {"kept_weight": [one[i] for one in seen]}
        for i, (budget, variant) in enumerate(variants)
    ]


@experiment(on_cpu=True)
@recorded(
    seeds=[SEED],
    **SMOLLM2,
)
def smollm2_indexer() -> dict:
    """Record losses with the keys that trained indexers select."""
    model = load_smollm2(SelectedAttention)
    training, measured = cut_passages()
    indexers = build_indexers(model, SEED)
    divergence = train_indexers(model, indexers, training, SEED)
    return {
        "variants": measure_variants(model, measured, indexers),
        "training_divergence": divergence,
        "training_symbols": len(training) * LENGTH,
        "indexer": {"heads": HEADS, "size": SIZE, "rate": RATE},
        "parameters": sum(map(count_parameters, indexers)),
        "model_parameters": count_parameters(model),
    }
