"""Pre-norm and post-norm: shallow, deep, warmed up or not.

Source: the question is that of Xiong et al. (2020), section 3,
    https://arxiv.org/abs/2002.04745; the experiments are ours.
"""

from attnbook.models.language_model import LanguageModel
from attnbook.models.transformer import Size
from attnbook.models.transformer_blocks import PostNorm, PreNorm
from attnbook.training.character_model import build_character_model
from attnbook.training.language_modeling import (
    LanguageModelRecipe,
    compute_held_out_loss,
    train_language_model,
)
from workshop.experiments.device import get_device
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment

RESIDUALS = {"pre": PreNorm, "post": PostNorm}
DEPTHS, WARMUPS, SEEDS = (2, 8), (0.0, 0.25), (0, 1, 2)
STEPS, RATE, MEAN = 160, 3e-3, 10


def choose_size(norm: str, blocks: int) -> Size:
    """Return the size of a model with its norms before or after."""
    return Size(32, 4, 128, blocks, residual=RESIDUALS[norm])


def measure_gradient_norms(model: LanguageModel) -> list[float]:
    """Return the norm of the gradient of each block's last matrix."""
    return [float(block.feed_forward.down.weight.grad.norm()) for block in model.blocks]


def train_and_measure(norm: str, blocks: int, warmup: float, seed: int) -> dict:
    """Train once: the loss, and the gradients of the first step."""
    model = build_character_model(seed, choose_size(norm, blocks)).to(get_device())
    losses: list[float] = []
    first: list[list[float]] = []

    def each(step: int, loss: float) -> None:
        losses.append(loss)
        if step == 1:  # after the first backward pass
            first.append(measure_gradient_norms(model))

    train_language_model(model, LanguageModelRecipe(STEPS, RATE, warmup), seed, [each])
    means = [sum(losses[i : i + MEAN]) / MEAN for i in range(0, len(losses), MEAN)]
    return {
        "loss": means,
        "valid_loss": compute_held_out_loss(model, "valid", 64),
        "first_gradients": first[0],
    }


@experiment()
@recorded(seeds=SEEDS, steps=STEPS, rate=RATE, averaged=MEAN, width=32)
def norms_training() -> dict:
    """Record small language models with pre-norm and post-norm."""
    return {
        "rows": [
            {
                "norm": norm,
                "blocks": blocks,
                "warmup": warmup,
                "seed": seed,
                **train_and_measure(norm, blocks, warmup, seed),
            }
            for seed in SEEDS
            for blocks in DEPTHS
            for warmup in WARMUPS
            for norm in RESIDUALS
        ]
    }
