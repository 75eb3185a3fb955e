"""Which heads of SmolLM2 follow a known pattern: scores on controlled inputs.

Each score is measured on sequences in which the pattern occurs, and again, at
the same positions, on sequences in which it does not: the first is the score,
the second a control for heads that attend to these positions anyway.

Source: Olsson et al. (2022), https://arxiv.org/abs/2209.11895
Axes: L layers, B sequences, H heads, T positions, N tokens of a copy
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnbook.diagnose.heads import (
    mark_duplicate_tokens,
    mark_first_token,
    mark_induction,
    mark_previous_token,
    score_pattern,
    uniform_causal_weights,
)
from attnbook.models.modern_decoder import ModernDecoder
from attnbook.models.smollm2 import load_smollm2, load_smollm2_tokenizer
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment
from workshop.experiments.smollm2_inputs import (
    EACH,
    LENGTHS,
    collect_weights,
    cut_texts,
    draw_batches,
    draw_unrepeated,
)
from workshop.experiments.smollm2_keys import round_table
from workshop.experiments.smollm2_text import SMOLLM2

SEED = 0
TEXTS, LENGTH = 4, 96
REACH = 8  # the largest fixed distance that is looked at

Pattern = Callable[[Int[Tensor, " T"]], Bool[Tensor, "T T"]]
PATTERNS: dict[str, Pattern] = {
    "previous": lambda ids: mark_previous_token(len(ids)),
    "duplicate": mark_duplicate_tokens,
    "induction": mark_induction,
    "first": lambda ids: mark_first_token(len(ids)),
}


def score_sequences(
    weights: Float[Tensor, "L B H T T"],
    ids: Int[Tensor, "B T"],
    pattern: Pattern,
) -> Float[Tensor, "B L H"]:
    """Return the scores of all heads on each sequence.

    Args:
        weights: of the heads.
        ids: which the pattern is made of: the same sequences, or for a control
            those with a repetition.
        pattern: marks keys.
    """
    return torch.stack(
        [score_pattern(weights[:, b], pattern(ids[b])) for b in range(len(ids))]
    )


def score_distances(
    weights: Float[Tensor, "L B H T T"], reach: int = REACH
) -> Float[Tensor, "D L H"]:
    """Return each head's mean weight at the distances 0 to `reach`.

    Queries whose key at the distance would be the first token do not count.
    """
    T = weights.shape[-1]
    inner = weights.mean(dim=1)[..., 1:, 1:]
    found = [
        inner.diagonal(-d, dim1=-2, dim2=-1).sum(-1) / (T - 1 - d)
        for d in range(reach + 1)
    ]
    return torch.stack(found)


def measure_chance(ids: Int[Tensor, "B T"]) -> dict[str, float]:
    """Return the scores of uniform causal weights on repeated tokens."""
    weights = uniform_causal_weights(ids.shape[1])
    return {
        name: float(score_pattern(weights, pattern(ids[0])))
        for name, pattern in PATTERNS.items()
    }


def average(parts: list[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each entry."""
    return {name: sum(one[name] for one in parts) / len(parts) for name in parts[0]}


def measure_scores(model: ModernDecoder, seed: int = SEED) -> dict:
    """Return scores, their spread over sequences, controls and chance.

    Returns:
        Tables (L, H): `scores` and `deviations` (over sequences) of each
        pattern, `controls` of the patterns that need a repetition, and
        `distances`, (REACH + 1, L, H), on tokens without a repetition;
        `chance` of each pattern.
    """
    symbols = model.config.symbols
    scores: dict[str, list[Tensor]] = {name: [] for name in PATTERNS}
    controls: dict[str, list[Tensor]] = {"duplicate": [], "induction": []}
    distances, chances = [], []
    for ids, other in zip(
        draw_batches(seed, symbols),
        draw_batches(seed, symbols, draw=draw_unrepeated),
        strict=True,
    ):
        weights = collect_weights(model, ids)
        for name, pattern in PATTERNS.items():
            scores[name].append(score_sequences(weights, ids, pattern))
        weights = collect_weights(model, other)
        for name, found in controls.items():
            found.append(score_sequences(weights, ids, PATTERNS[name]))
        distances.append(score_distances(weights))
        chances.append(measure_chance(ids))
    whole = {name: torch.cat(found) for name, found in scores.items()}
    return {
        "scores": {name: tabulate(x.mean(0)) for name, x in whole.items()},
        "deviations": {name: tabulate(x.std(0)) for name, x in whole.items()},
        "controls": {
            name: tabulate(torch.cat(x).mean(0)) for name, x in controls.items()
        },
        "distances": tabulate(torch.stack(distances).mean(0)),
        "chance": average(chances),
    }


def tabulate(x: Tensor, digits: int = 4) -> list:
    """Return a tensor as nested lists of rounded numbers."""
    return round_table(x.tolist(), digits)


def score_texts(model: ModernDecoder, ids: Int[Tensor, "B T"]) -> dict:
    """Return tables of the scores on ordinary text."""
    weights = collect_weights(model, ids)
    return {
        name: tabulate(score_sequences(weights, ids, pattern).mean(0))
        for name, pattern in PATTERNS.items()
    }


@experiment(on_cpu=True)
@recorded(
    seeds=[*range(SEED, SEED + EACH * len(LENGTHS))],
    **SMOLLM2,
)
def smollm2_heads() -> dict:
    """Record the scores of every head on random tokens and on text."""
    model, tokenizer = load_smollm2(), load_smollm2_tokenizer()
    texts = cut_texts(tokenizer, TEXTS, LENGTH)
    return {
        **measure_scores(model),
        "text": score_texts(model, texts),
        "lengths": LENGTHS,
        "sequences": EACH * len(LENGTHS),
        "texts": TEXTS,
        "text_length": LENGTH,
    }
