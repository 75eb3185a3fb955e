"""Scores that run away at a high learning rate, and what holds them.

Source: the entropy of attention as a sign of trouble: Zhai et al. (2023),
    section 3, https://arxiv.org/abs/2303.06296; the experiments are ours.
Axes: B batch, T positions, H heads
"""

from collections.abc import Callable

import torch

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.attention.self_attention import causal_mask
from attnbook.diagnose import entropy
from attnbook.models.devices import find_device, use_seed
from attnbook.models.language_model import LanguageModel
from attnbook.models.stabilized_attention import (
    QKNormAttention,
    SoftCapAttention,
)
from attnbook.models.transformer import Size
from attnbook.models.transformer_blocks import PreNorm
from attnbook.training.character_model import build_character_model
from attnbook.training.language_modeling import (
    LanguageModelRecipe,
    compute_held_out_loss,
    cut_windows,
    train_language_model,
)
from workshop.experiments.device import get_device
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment

SIZE = Size(32, 4, 128, 2, residual=PreNorm)
CAP = 10.0  # of the soft-capped scores
VARIANTS: dict[str, Callable[[int, int], MultiHeadAttention]] = {
    "plain": MultiHeadAttention,
    "normed": QKNormAttention,
    "capped": lambda width, heads: SoftCapAttention(width, heads, CAP),
}
RATES, SEEDS, STEPS, EVERY = (3e-3, 3e-2, 1e-1), (0, 1, 2), 200, 10


def build_model(variant: str, seed: int) -> LanguageModel:
    """Return a language model with one variant of scores."""
    model = build_character_model(seed, SIZE).to(get_device())
    with use_seed(seed):
        for block in model.blocks:
            block.attention = VARIANTS[variant](SIZE.width, SIZE.heads)
    return model.to(get_device())


@torch.no_grad()
def measure_scores(model: LanguageModel) -> dict[str, list[float]]:
    """Return each block's mean entropy and largest score, on held-out text."""
    read, _ = cut_windows("valid", 97 * torch.arange(32), 64)
    read = read.to(find_device(model))
    mask = causal_mask(read.shape[1], read.shape[1], read.device)
    found: dict[str, list[float]] = {"entropy": [], "largest": []}

    def look(attention: MultiHeadAttention, inputs: tuple, _) -> None:
        query, key, _ = attention.project(inputs[0], inputs[0])
        scores = attention.scores(query, key)
        weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        found["entropy"].append(float(entropy(weights).mean()))
        found["largest"].append(float(scores[..., mask].abs().amax()))

    hooks = [b.attention.register_forward_hook(look) for b in model.blocks]
    model(read)
    for hook in hooks:
        hook.remove()
    return found


def train_and_measure(variant: str, rate: float, seed: int) -> dict:
    """Train once, looking at the attention every few steps."""
    model = build_model(variant, seed)
    seen: list[dict] = []
    recent: list[float] = []

    def each(step: int, loss: float) -> None:
        recent.append(loss)
        if (step + 1) % EVERY == 0:
            mean = sum(recent) / EVERY
            seen.append({"step": step + 1, "loss": mean, **measure_scores(model)})
            recent.clear()

    train_language_model(model, LanguageModelRecipe(STEPS, rate), seed, [each])
    columns = {k: [point[k] for point in seen] for k in seen[0]}
    return {**columns, "valid_loss": compute_held_out_loss(model, "valid", 64)}


@experiment()
@recorded(seeds=SEEDS, steps=STEPS, every=EVERY, width=32)
def stability_training() -> dict:
    """Record loss, entropy and largest scores for each variant and rate."""
    return {
        "rows": [
            {
                "variant": variant,
                "rate": rate,
                "seed": seed,
                **train_and_measure(variant, rate, seed),
            }
            for seed in SEEDS
            for rate in RATES
            for variant in VARIANTS
        ]
    }
