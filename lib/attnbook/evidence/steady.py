"""Scores that run away at a high learning rate, and what holds them.

Chapter: chapters/09_transformer
Source: the entropy of attention as a sign of trouble: Zhai et al. (2023),
    section 3, https://arxiv.org/abs/2303.06296; the experiments are ours.
Axes: B batch, T positions, H heads
"""

import torch
from torch import nn

from attnbook.diagnose import entropy
from attnbook.evidence.language import made_of
from attnbook.evidence.readers import Course, fit, held_out, windows
from attnbook.evidence.scaling import timed
from attnbook.language_model import LanguageModel
from attnbook.self_attention import causal_mask
from attnbook.steady_attention import SteadyAttention
from attnbook.transformer import Size
from attnbook.transformer_blocks import PreNorm

SIZE = Size(32, 4, 128, 2, around=PreNorm)
WAYS: dict[str, dict] = {
    "plain": {},
    "normed": {"normed": True},
    "capped": {"cap": 10.0},
}
RATES, SEEDS, STEPS, EVERY = (3e-3, 3e-2, 1e-1), (0, 1, 2), 200, 10


def steady(way: str, seed: int) -> LanguageModel:
    """Return a language model with one way of making its scores."""
    model = made_of(seed, SIZE)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for block in model.blocks:
            block.attention = SteadyAttention(
                SIZE.width, SIZE.heads, **WAYS[way]
            )
    return model


@torch.no_grad()
def looked(model: LanguageModel) -> dict[str, list[float]]:
    """Return each block's mean entropy and largest score, on held-out text."""
    read, _ = windows("valid", 97 * torch.arange(32), 64)
    mask = causal_mask(read.shape[1], read.shape[1])
    found: dict[str, list[float]] = {"entropy": [], "largest": []}

    def look(attention: nn.Module, inputs: tuple, _) -> None:
        scores = attention.scores(inputs[0], inputs[0])
        weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        found["entropy"].append(float(entropy(weights).mean()))
        found["largest"].append(float(scores[..., mask].abs().amax()))

    hooks = [b.attention.register_forward_hook(look) for b in model.blocks]
    model(read)
    for hook in hooks:
        hook.remove()
    return found


def trained_so(way: str, rate: float, seed: int) -> dict:
    """Train once, looking at the attention every few steps."""
    model = steady(way, seed)
    seen: list[dict] = []
    recent: list[float] = []

    def each(step: int, loss: float) -> None:
        recent.append(loss)
        if (step + 1) % EVERY == 0:
            mean = sum(recent) / EVERY
            seen.append({"step": step + 1, "loss": mean, **looked(model)})
            recent.clear()

    fit(model, Course(STEPS, rate), seed, each)
    columns = {k: [point[k] for point in seen] for k in seen[0]}
    return {**columns, "valid_loss": held_out(model, "valid", 64)}


def steady_training() -> dict:
    """Record loss, entropy and largest scores for each way and rate."""

    def run() -> dict:
        return {
            "rows": [
                {
                    "way": way,
                    "rate": rate,
                    "seed": seed,
                    **trained_so(way, rate, seed),
                }
                for seed in SEEDS
                for rate in RATES
                for way in WAYS
            ]
        }

    return timed(
        "steady_training", list(SEEDS), run, steps=STEPS, every=EVERY, width=32
    )
