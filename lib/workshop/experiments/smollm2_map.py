"""Attention maps of SmolLM2 on one short passage, for the pattern explorer.

Axes: L layers, H heads, T positions
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.models.modern_decoder import ModernDecoder
from attnbook.models.smollm2 import load_smollm2, load_smollm2_tokenizer
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment
from workshop.experiments.selected_attention import (
    Layer,
    SelectedAttention,
    set_selection,
)
from workshop.experiments.smollm2_text import (
    MAPS,
    SMOLLM2,
    cut_passage,
    list_sections,
    read_lines,
)

LENGTH, SECTION = 64, 5


@torch.no_grad()
def compute_maps(
    model: ModernDecoder, ids: Int[Tensor, "T"]
) -> Float[Tensor, "L H T T"]:
    """Return the weights of every head."""
    found: list[Tensor] = []

    def look(layer: Layer) -> Tensor:
        found.append(layer.compute_weights()[0])
        return layer.causal

    set_selection(model, look)
    model(ids[None])
    return torch.stack(found)


def describe_heads(
    maps: Float[Tensor, "L H T T"], ids: Int[Tensor, "T"]
) -> dict[str, Float[Tensor, "L H"]]:
    """Return, for each kind of head, how much each head is of this kind.

    Returns:
        Mean weight over the queries of the second half: on the first symbol
        ("sink"); on the symbol before ("previous"); on the four symbols up to
        the query ("local"); on symbols that follow an earlier occurrence of
        the query's symbol ("induction"); on keys, other than the first, at
        least 16 positions back ("far"); and the weight that is neither on the
        first symbol nor on the largest other key ("spread").
    """
    T = len(ids)
    i = torch.arange(T)
    back = i[:, None] - i
    after = shift_symbols(ids) == ids[:, None]
    late, rest = slice(T // 2, None), maps.clone()
    rest[..., 0] = 0.0
    masks = {
        "sink": (i == 0).expand(T, T),
        "previous": back == 1,
        "local": (back >= 0) & (back < 4),
        "induction": after & (back > 0) & (i > 0),
        "far": (back >= 16) & (i > 0),
    }
    found = {
        name: (maps * mask).sum(-1)[..., late].mean(-1) for name, mask in masks.items()
    }
    spread = rest.sum(-1) - rest.amax(-1)
    return found | {"spread": spread[..., late].mean(-1)}


def shift_symbols(ids: Int[Tensor, "T"]) -> Int[Tensor, "T"]:
    """Return, at each position, the symbol before it, or -1."""
    return torch.cat([ids.new_tensor([-1]), ids[:-1]])


def to_thousandths(weights: Float[Tensor, "T T"]) -> list[list[int]]:
    """Return each query's weights on the keys up to its own, times 1,000."""
    rounded = (weights * 1000).round().int().tolist()
    return [row[: t + 1] for t, row in enumerate(rounded)]


def choose_heads(
    kinds: dict[str, Float[Tensor, "L H"]],
    counts: Mapping[str, int] | None = None,
) -> list[dict]:
    """Return the most typical heads of each kind, none of them twice.

    Args:
        kinds: how much each head is of each kind.
        counts: how many heads of a kind are chosen; one unless given.
    """
    chosen: list[dict] = []
    for kind, amount in kinds.items():
        order = amount.flatten().argsort(descending=True).tolist()
        heads = [divmod(n, amount.shape[1]) for n in order]
        taken = {(x["layer"], x["head"]) for x in chosen}
        free = [x for x in heads if x not in taken]
        for layer, head in free[: (counts or {}).get(kind, 1)]:
            share = round(float(amount[layer, head]), 3)
            chosen.append({"layer": layer, "head": head, "kind": kind, "share": share})
    return chosen


@experiment(on_cpu=True)
@recorded(
    seeds=[],
    **SMOLLM2,
)
def smollm2_map() -> dict:
    """Record the weights of six different heads, and the mean of all heads."""
    model, tokenizer = load_smollm2(SelectedAttention), load_smollm2_tokenizer()
    lines = read_lines()
    start = list_sections(len(lines))[SECTION] + MAPS
    ids = cut_passage(tokenizer, lines, start, LENGTH)
    maps = compute_maps(model, ids)
    heads = choose_heads(describe_heads(maps, ids))
    for one in heads:
        one["thousandths"] = to_thousandths(maps[one["layer"], one["head"]])
    mean = {
        "layer": None,
        "head": None,
        "kind": "mean",
        "share": None,
        "thousandths": to_thousandths(maps.mean(dim=(0, 1))),
    }
    return {
        "examples": [
            {
                "title": f"sentences of LibreOffice's help, from line {start}",
                "tokens": [tokenizer.decode([i]) for i in ids.tolist()],
                "heads": [*heads, mean],
            }
        ]
    }
