"""Activation patching in SmolLM2: which heads carry "what came before it"?

A clean sequence is a copy of random tokens, ... X B ... Y C ..., and the
beginning of a second copy, which ends with X: B is next. The corrupted sequence
exchanges X and Y in the first copy, so that C followed X there. Each head, one
after the other, gets its output of the clean run in the corrupted run. What is
measured is the share of the lost difference between the logits of B and C that
this restores.

Source: Vig et al. (2020), section 3, https://arxiv.org/abs/2004.12265; Meng et
    al. (2022), section 2, https://arxiv.org/abs/2202.05262
Axes: L layers, B sequences, H heads, T positions
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.models.head_edits import Head, patch_heads, record_heads
from attnbook.models.modern_decoder import ModernDecoder
from attnbook.models.smollm2 import load_smollm2
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment
from workshop.experiments.smollm2_ablation import rank_heads
from workshop.experiments.smollm2_heads import tabulate
from workshop.experiments.smollm2_inputs import (
    START,
    compute_logits,
    draw_tokens,
    list_block_inputs,
)
from workshop.experiments.smollm2_text import SMOLLM2

SEED, SEQUENCES, COUNT = 400, 8, 20
# X and Y stand at these places of the N = COUNT tokens, from 0.
X_PLACE, Y_PLACE = 7, 13
LOOKED_AT = 12  # heads of which it is measured where their outputs matter


class Pairs(NamedTuple):
    """Clean and corrupted sequences, and what follows X in each.

    Attributes:
        clean: (B, T); X is last.
        corrupted: (B, T), with X and Y exchanged in the first copy.
        answers: (B, 2): B and C.
    """

    clean: Tensor
    corrupted: Tensor
    answers: Tensor


def draw_pairs(
    seed: int, symbols: int, sequences: int = SEQUENCES, count: int = COUNT
) -> Pairs:
    """Return sequences with the seeds `seed` to `seed + sequences - 1`."""
    drawn = torch.stack(
        [draw_tokens(seed + i, count, symbols) for i in range(sequences)]
    )
    start = drawn.new_full((sequences, 1), START)
    swapped = drawn.clone()
    swapped[:, [X_PLACE, Y_PLACE]] = drawn[:, [Y_PLACE, X_PLACE]]
    again = drawn[:, : X_PLACE + 1]
    return Pairs(
        torch.cat([start, drawn, again], dim=1),
        torch.cat([start, swapped, again], dim=1),
        drawn[:, [X_PLACE + 1, Y_PLACE + 1]],
    )


def list_places() -> dict[str, list[int]]:
    """Return where a patch may be: positions in the sequence, from 0."""
    return {
        "exchanged": [1 + X_PLACE, 1 + Y_PLACE],
        "after": [2 + X_PLACE, 2 + Y_PLACE],
        "last": [1 + COUNT + X_PLACE],
    }


def compute_difference(
    model: ModernDecoder,
    x: Float[Tensor, "B T C"],
    answers: Int[Tensor, "B 2"],
    layer: int = 0,
) -> Float[Tensor, " B"]:
    """Return the logit of B minus that of C at the last position."""
    logits = compute_logits(model, x, layer, slice(-1, None))[:, 0]
    found = logits.gather(1, answers)
    return found[:, 0] - found[:, 1]


@torch.no_grad()
def measure_patches(
    model: ModernDecoder,
    pairs: Pairs,
    heads: Sequence[Head],
    places: Sequence[int] | None = None,
) -> dict:
    """Return the logit differences with one head patched at a time.

    Args:
        model: as it is.
        pairs: the sequences.
        heads: that are patched, one after the other.
        places: positions of the patch; everywhere unless given.

    Returns:
        `clean` and `corrupted` (B,), and `patched` (heads, B).
    """
    with record_heads(model) as recorded_heads:
        clean = list_block_inputs(model, pairs.clean)
    corrupted = list_block_inputs(model, pairs.corrupted)
    last = len(model.blocks)
    patched = []
    for head in heads:
        with patch_heads(model, [head], recorded_heads, places):
            x, layer = corrupted[head[0]], head[0]
            patched.append(compute_difference(model, x, pairs.answers, layer))
    return {
        "clean": compute_difference(model, clean[-1], pairs.answers, last),
        "corrupted": compute_difference(model, corrupted[-1], pairs.answers, last),
        "patched": torch.stack(patched),
    }


def compute_shares(found: dict) -> Float[Tensor, " heads"]:
    """Return the share of the difference that each patch restores.

    Numerator and denominator are means over the sequences.
    """
    lost = (found["clean"] - found["corrupted"]).mean()
    return (found["patched"] - found["corrupted"]).mean(dim=1) / lost


def measure_group(model: ModernDecoder, pairs: Pairs, heads: Sequence[Head]) -> float:
    """Return the share that patching several heads together restores."""
    with torch.no_grad(), record_heads(model) as recorded_heads:
        clean = list_block_inputs(model, pairs.clean)
        x = model.embed(pairs.corrupted)
    with torch.no_grad():
        first = compute_difference(model, clean[-1], pairs.answers, len(clean) - 1)
        none = compute_difference(model, x, pairs.answers)
        with patch_heads(model, heads, recorded_heads):
            patched = compute_difference(model, x, pairs.answers)
    return float((patched - none).mean() / (first - none).mean())


@experiment(on_cpu=True)
@recorded(
    seeds=[*range(SEED, SEED + SEQUENCES)],
    **SMOLLM2,
)
def smollm2_patching() -> dict:
    """Record what each head's clean output restores in a corrupted run."""
    model = load_smollm2()
    pairs = draw_pairs(SEED, model.config.symbols)
    layers, heads = len(model.blocks), model.config.heads
    everyone = [(layer, h) for layer in range(layers) for h in range(heads)]
    found = measure_patches(model, pairs, everyone)
    shares = compute_shares(found)
    best = rank_heads(shares.unflatten(0, (layers, heads)))[:LOOKED_AT]
    rows = []
    for head in best:
        row = {
            "head": list(head),
            "everywhere": float(shares[everyone.index(head)]),
        }
        rows.append(row)
    for name, places in list_places().items():
        at = compute_shares(measure_patches(model, pairs, best, places))
        for row, share in zip(rows, at.tolist(), strict=True):
            row[name] = share
    return {
        "clean": tabulate(found["clean"], 3),
        "corrupted": tabulate(found["corrupted"], 3),
        "shares": tabulate(shares.unflatten(0, (layers, heads))),
        "patched": tabulate(found["patched"].unflatten(0, (layers, heads)), 3),
        "places": rows,
        "best_four_together": measure_group(model, pairs, best[:4]),
        "count": COUNT,
    }
