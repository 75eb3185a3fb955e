"""Which keys SmolLM2 needs: its loss when each query keeps only some of them.

The model stays as it was trained; keys are left out in all layers at once, and
positions stay those of the text. An oracle computes all weights of a layer,
keeps the largest, and attends to their keys alone.

Source: windows with and without the first symbols: Xiao et al. (2023),
    https://arxiv.org/abs/2309.17453; blocks by their mean key: Lu et al.
    (2025), https://arxiv.org/abs/2502.13189
Axes: L layers, H heads, T positions, R queries that are looked at
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnbook import masks
from attnbook.attention.key_selection import (
    score_mean_keys,
    select_top_blocks,
    select_top_keys,
    sum_over_blocks,
)
from attnbook.models.modern_decoder import ModernDecoder
from attnbook.models.smollm2 import load_smollm2, load_smollm2_tokenizer
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment
from workshop.experiments.selected_attention import (
    PAGE,
    Layer,
    SelectedAttention,
    Selection,
    compute_losses,
    measure_selection,
    select_all,
    select_in_chunks,
    set_selection,
)
from workshop.experiments.smollm2_text import (
    LENGTH,
    SMOLLM2,
    count_bytes,
    cut_passage,
    list_sections,
    read_lines,
)

EVERY = 4  # of the queries of the second half, in `observe_weights`
SHARE = 0.9


@dataclass(frozen=True)
class Variant:
    """A way to select keys.

    Attributes:
        name: of it.
        select: returns the mask of the keys that each query keeps.
        settings: what else is written down: its kind and its numbers.
    """

    name: str
    select: Selection
    settings: dict = field(default_factory=dict)


def keep_window(size: int, sinks: int, length: int = LENGTH) -> Variant:
    """Return the last `size` keys, the query's own among them, and the first.

    Args:
        size: of the window.
        sinks: how many of the first keys stay as well.
        length: T.
    """
    mask = masks.window(length, length, size)
    mask = mask | masks.sinks(length, length, sinks)
    name = f"window {size}, {sinks} sink{'' if sinks == 1 else 's'}"
    settings = {"kind": "window", "window": size, "sinks": sinks}
    return Variant(name, lambda layer: mask[layer.rows], settings)


def keep_top(count: int) -> Variant:
    """Return an oracle: the keys with the largest weights of each head."""

    def select(layer: Layer) -> Bool[Tensor, "B H R T"]:
        return select_top_keys(layer.compute_weights(), layer.causal, count)

    settings = {"kind": "oracle keys", "count": count}
    return Variant(f"oracle top {count}", select_in_chunks(select), settings)


def keep_top_blocks(count: int, size: int = PAGE) -> Variant:
    """Return an oracle: the blocks with the largest weights of each head."""

    def select(layer: Layer) -> Bool[Tensor, "B H R T"]:
        blocks = sum_over_blocks(layer.compute_weights(), size)
        return select_top_blocks(blocks, layer.causal, count, size)

    settings = {"kind": "oracle blocks", "count": count, "size": size}
    name = f"oracle {count} blocks of {size}"
    return Variant(name, select_in_chunks(select), settings)


def keep_mean_blocks(count: int, size: int = PAGE, first: int = 0) -> Variant:
    """Return the blocks whose mean key has the largest product with a query.

    Args:
        count: blocks of a head's query, its own among them.
        size: keys of a block.
        first: 1 if the first block always counts as one of them, else 0.
    """

    def select(layer: Layer) -> Bool[Tensor, "B H R T"]:
        scores = score_mean_keys(layer.query, layer.key, size, layer.rows)
        scores[..., :first] = torch.inf
        return select_top_blocks(scores, layer.causal, count, size)

    name = f"mean keys, {count} blocks of {size}"
    name += ", the first among them" if first else ""
    settings = {"kind": "mean keys", "count": count, "size": size}
    return Variant(name, select, settings | {"first": bool(first)})


def list_variants() -> list[Variant]:
    """Return what is compared, full attention first."""
    return [
        Variant("full", select_all, {"kind": "full"}),
        *(keep_window(size, n) for size in (64, 256) for n in (0, 1, 4)),
        *map(keep_top, (8, 32, 128)),
        keep_top_blocks(8),
        keep_mean_blocks(8),
        keep_mean_blocks(8, first=1),
    ]


def count_needed_keys(
    weights: Float[Tensor, "*B R T"], share: float = SHARE
) -> Int[Tensor, "*B R"]:
    """Return how few keys carry a share of each query's weight."""
    ordered = weights.sort(dim=-1, descending=True).values
    return (ordered.cumsum(dim=-1) < share).sum(dim=-1) + 1


def drop_first(
    weights: Float[Tensor, "*B R T"],
) -> Float[Tensor, "*B R T-1"]:
    """Return the weights of the other keys, divided by their sum."""
    rest = weights[..., 1:]
    return rest / rest.sum(dim=-1, keepdim=True)


@torch.no_grad()
def observe_weights(
    model: ModernDecoder, ids: Int[Tensor, "T"], variants: Sequence[Variant]
) -> dict:
    """Return what the weights of full attention look like on a passage.

    Every fourth query of the second half is looked at.

    Returns:
        `loss`; for each layer and head `first_token_weight` (mean over the
        queries), `needed_keys` (median number of keys that carry 90 % of the
        weight) and `needed_keys_without_first` (the same of the other keys and
        their weights); and `kept_weight`, the mean share of the weight that
        the keys of each variant carry.
    """
    rows = torch.arange(len(ids) // 2, len(ids), EVERY)
    found: list[dict] = []

    def look(layer: Layer) -> Tensor:
        some = layer.at(rows)
        weights = some.compute_weights()
        rest = drop_first(weights)
        found.append(
            {
                "first_token_weight": weights[0, ..., 0].mean(-1),
                "needed_keys": count_needed_keys(weights)[0].median(-1).values,
                "needed_keys_without_first": (
                    count_needed_keys(rest)[0].median(-1).values
                ),
                "kept_weight": [
                    float((weights * v.select(some)).sum(-1).mean()) for v in variants
                ],
            }
        )
        return layer.causal

    set_selection(model, look)
    loss = float(compute_losses(model, ids).mean())
    tables = {
        name: [one[name].tolist() for one in found]
        for name in found[0]
        if name != "kept_weight"
    }
    kept = torch.tensor([one["kept_weight"] for one in found]).mean(dim=0)
    return {"loss": loss, "kept_weight": kept.tolist()} | tables


def round_table(table: list, digits: int = 3) -> list:
    """Return nested lists of numbers, rounded."""
    return [
        round_table(x, digits) if isinstance(x, list) else round(x, digits)
        for x in table
    ]


@experiment(on_cpu=True)
@recorded(
    seeds=[],
    **SMOLLM2,
)
def smollm2_keys() -> dict:
    """Record losses with some of the keys only, and the weights of all."""
    model, tokenizer = load_smollm2(SelectedAttention), load_smollm2_tokenizer()
    lines = read_lines()
    starts = list_sections(len(lines))
    passages = [cut_passage(tokenizer, lines, i) for i in starts]
    variants = list_variants()
    seen = [observe_weights(model, ids, variants) for ids in passages]
    rows = []
    for i, variant in enumerate(variants):
        row = {"name": variant.name} | variant.settings
        row |= measure_selection(model, passages, variant.select)
        row["kept_weight"] = [one["kept_weight"][i] for one in seen]
        rows.append(row)
    half = LENGTH // 2
    return {
        "variants": rows,
        "length": LENGTH,
        "predicted": LENGTH - half - 1,
        "first_lines": starts,
        "bytes": [count_bytes(tokenizer, ids[half + 1 :]) for ids in passages],
        "groups": model.config.groups,
        **{
            name: round_table([one[name] for one in seen])
            for name in (
                "first_token_weight",
                "needed_keys",
                "needed_keys_without_first",
            )
        },
    }
