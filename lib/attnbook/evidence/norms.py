"""The norm before or after the sublayer: shallow, deep, warmed up or not.

Chapter: chapters/09_transformer
Source: the question is that of Xiong et al. (2020), section 3,
    https://arxiv.org/abs/2002.04745; the experiments are ours.
Axes: none
"""

from attnbook.evidence.language import made_of
from attnbook.evidence.readers import Course, fit, held_out
from attnbook.evidence.scaling import timed
from attnbook.language_model import LanguageModel
from attnbook.transformer import Size
from attnbook.transformer_blocks import PostNorm, PreNorm

AROUND = {"pre": PreNorm, "post": PostNorm}
DEPTHS, WARMUPS, SEEDS = (2, 8), (0.0, 0.25), (0, 1, 2)
STEPS, RATE, MEAN = 160, 3e-3, 10


def size_of(around: str, blocks: int) -> Size:
    """Return the size of a model with its norms before or after."""
    return Size(32, 4, 128, blocks, around=AROUND[around])


def slopes(model: LanguageModel) -> list[float]:
    """Return the norm of the gradient of each block's last matrix."""
    return [
        float(block.feed_forward.down.weight.grad.norm())
        for block in model.blocks
    ]


def trained_so(around: str, blocks: int, warmup: float, seed: int) -> dict:
    """Train once: the loss, and the gradients of the first step."""
    model = made_of(seed, size_of(around, blocks))
    losses: list[float] = []
    first: list[list[float]] = []

    def each(step: int, loss: float) -> None:
        losses.append(loss)
        if step == 1:  # after the first backward pass
            first.append(slopes(model))

    fit(model, Course(STEPS, RATE, warmup), seed, each)
    means = [
        sum(losses[i : i + MEAN]) / MEAN for i in range(0, len(losses), MEAN)
    ]
    return {
        "loss": means,
        "valid_loss": held_out(model, "valid", 64),
        "first_gradients": first[0],
    }


def norms_training() -> dict:
    """Record small language models with the norm before and after."""

    def run() -> dict:
        return {
            "rows": [
                {
                    "around": around,
                    "blocks": blocks,
                    "warmup": warmup,
                    "seed": seed,
                    **trained_so(around, blocks, warmup, seed),
                }
                for seed in SEEDS
                for blocks in DEPTHS
                for warmup in WARMUPS
                for around in AROUND
            ]
        }

    return timed(
        "norms_training",
        list(SEEDS),
        run,
        steps=STEPS,
        rate=RATE,
        averaged=MEAN,
        width=32,
    )
