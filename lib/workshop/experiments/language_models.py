"""Small character language models of the help texts.

Axes: B batch, T positions, H heads, C model width, D width of a head
"""

from collections.abc import Callable

import torch
from torch import Tensor

from attnbook.attention.multi_head import GroupedQueryAttention, MultiHeadAttention
from attnbook.attention.self_attention import causal_mask
from attnbook.data.libreoffice import encode_characters
from attnbook.diagnose import entropy
from attnbook.models.devices import use_seed
from attnbook.models.modern_decoder import (
    ModernAttention,
    RotaryAttention,
    SwiGLU,
    TokenEmbedding,
)
from attnbook.models.recurrent import count_parameters
from attnbook.models.transformer import (
    LanguageModel,
    PostNorm,
    PreNorm,
    QKNormAttention,
    RMSNorm,
    Size,
    soft_cap,
)
from attnbook.training.language_modeling import (
    RECIPE,
    RECORD_NAME,
    LanguageModelRecipe,
    build_character_model,
    compute_guessing_losses,
    compute_held_out_loss,
    cut_windows,
    train_language_model,
)
from workshop.experiments.record import (
    recorded,
    round_to_half,
    save_weights,
    sweep,
)

SEEDS = (0, 1, 2)


@recorded(
    seeds=[0], **vars(RECIPE), parameters=count_parameters(build_character_model())
)
def language_model() -> dict:
    """Record the test loss of the model, and keep its weights."""
    model = build_character_model()
    train_language_model(model, RECIPE, 0)
    round_to_half(model)
    save_weights(model, RECORD_NAME)
    return {
        "test_loss": compute_held_out_loss(model, "test", RECIPE.window),
        "guesses": compute_guessing_losses("test"),
    }


RESIDUALS = {"pre": PreNorm, "post": PostNorm}
DEPTHS, WARMUPS = (2, 8), (0.0, 0.25)
NORM_STEPS, NORM_RATE, MEAN = 160, 3e-3, 10


def train_with_norm(norm: str, blocks: int, warmup: float, seed: int) -> dict:
    size = Size(32, 4, 128, blocks, residual=RESIDUALS[norm])
    model = build_character_model(seed, size)
    losses: list[float] = []
    norms: list[float] = []

    def each(step: int, loss: float) -> None:
        losses.append(loss)
        if step == 1:  # after the first backward pass
            last = (block.feed_forward.down.weight for block in model.blocks)
            norms.extend(float(weight.grad.norm()) for weight in last)

    train_language_model(
        model, LanguageModelRecipe(NORM_STEPS, NORM_RATE, warmup), seed, [each]
    )
    means = [sum(losses[i : i + MEAN]) / MEAN for i in range(0, len(losses), MEAN)]
    return {
        "loss": means,
        "valid_loss": compute_held_out_loss(model, "valid", 64),
        "first_gradients": norms,
    }


@recorded(seeds=SEEDS, steps=NORM_STEPS, rate=NORM_RATE, averaged=MEAN, width=32)
def norms_training() -> dict:
    """Record small language models with pre-norm and post-norm.

    Source: the question is that of Xiong et al. (2020), section 3,
        https://arxiv.org/abs/2002.04745; the experiments are ours.
    """
    axes = {"seed": SEEDS, "blocks": DEPTHS, "warmup": WARMUPS, "norm": RESIDUALS}
    return {"rows": sweep(train_with_norm, **axes)}


STABILITY_SIZE = Size(32, 4, 128, 2, residual=PreNorm)
CAP = 10.0  # of the soft-capped scores


class SoftCapAttention(MultiHeadAttention):
    """Multi-head attention whose scores lie between -CAP and CAP."""

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        return soft_cap(super().scores(query, key), CAP)


VARIANTS: dict[str, Callable[[int, int], MultiHeadAttention]] = {
    "plain": MultiHeadAttention,
    "normed": QKNormAttention,
    "capped": SoftCapAttention,
}
STABILITY_RATES, STABILITY_STEPS, STABILITY_EVERY = (3e-3, 3e-2, 1e-1), 200, 10


@torch.no_grad()
def measure_scores(model: LanguageModel) -> dict[str, list[float]]:
    read, _ = cut_windows("valid", 97 * torch.arange(32), 64)
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


def train_variant(variant: str, rate: float, seed: int) -> dict:
    model, size = build_character_model(seed, STABILITY_SIZE), STABILITY_SIZE
    with use_seed(seed):
        for block in model.blocks:
            block.attention = VARIANTS[variant](size.width, size.heads)
    seen: list[dict] = []
    recent: list[float] = []

    def each(step: int, loss: float) -> None:
        recent.append(loss)
        if (step + 1) % STABILITY_EVERY == 0:
            mean = sum(recent) / STABILITY_EVERY
            seen.append({"step": step + 1, "loss": mean, **measure_scores(model)})
            recent.clear()

    recipe = LanguageModelRecipe(STABILITY_STEPS, rate)
    train_language_model(model, recipe, seed, [each])
    columns = {k: [point[k] for point in seen] for k in seen[0]}
    return {**columns, "valid_loss": compute_held_out_loss(model, "valid", 64)}


@recorded(seeds=SEEDS, steps=STABILITY_STEPS, every=STABILITY_EVERY, width=32)
def stability_training() -> dict:
    """Record loss, entropy and largest scores for each variant and rate.

    Source: the entropy of attention as a sign of trouble: Zhai et al. (2023),
        section 3, https://arxiv.org/abs/2303.06296; the experiments are ours.
    """
    rows = sweep(train_variant, seed=SEEDS, rate=STABILITY_RATES, variant=VARIANTS)
    return {"rows": rows}


# Each model has the changes of the one before, and one more.
CHANGES = (
    *("block of 2017", "pre-norm", "RMSNorm", "SwiGLU"),
    *("RoPE", "grouped queries", "no biases", "QK-norm"),
)
WIDTH, HEADS, GROUPS, HIDDEN, BLOCKS = 48, 4, 2, 192, 2
LADDER_RATES, LADDER_STEPS, WINDOW = (3e-3, 1e-2), 240, 64
LADDER_RECIPE = {"warmup": 0.05, "clip": 1.0, "window": WINDOW}


class PreRMSNorm(PreNorm):
    """Pre-norm residual connection with RMSNorm: x + sublayer(norm(x))."""

    def __init__(self, width: int, dropout: float = 0.0):
        super().__init__(width, dropout)
        self.norm = RMSNorm(width)

    @staticmethod
    def make_final_norm(width: int) -> RMSNorm:
        return RMSNorm(width)


def build_attention(made: set[str]) -> MultiHeadAttention:
    if "QK-norm" in made:
        return ModernAttention(WIDTH, HEADS, GROUPS)
    groups = GROUPS if "grouped queries" in made else HEADS
    kind = RotaryAttention if "RoPE" in made else GroupedQueryAttention
    return kind(WIDTH, HEADS, groups, bias="no biases" not in made)


def build_changed(last: str, seed: int) -> LanguageModel:
    made = {*CHANGES[: CHANGES.index(last) + 1]}
    residual = PreNorm if "pre-norm" in made else PostNorm
    if "RMSNorm" in made:
        residual = PreRMSNorm
    symbols = encode_characters("train")[1]
    with use_seed(seed):
        size = Size(WIDTH, HEADS, HIDDEN, BLOCKS, residual=residual)
        model = LanguageModel(symbols, size)
        if "RoPE" in made:
            model.embed = TokenEmbedding(symbols, WIDTH)
        for block in model.blocks:
            block.attention = build_attention(made)
            if "SwiGLU" in made:
                biased = "no biases" not in made
                hidden = 2 * HIDDEN // 3  # as many weights as without a gate
                block.feed_forward = SwiGLU(WIDTH, hidden, biased)
    return model


def train_changed(model: str, rate: float, seed: int) -> dict:
    built = build_changed(model, seed)
    groups = built.blocks[0].attention.groups
    recipe = LanguageModelRecipe(LADDER_STEPS, rate, **LADDER_RECIPE)
    train_language_model(built, recipe, seed)
    return {
        "cache": 2 * groups * WIDTH // HEADS * BLOCKS,
        "valid_loss": compute_held_out_loss(built, "valid", WINDOW),
        "test_loss": compute_held_out_loss(built, "test", WINDOW),
    }


@recorded(seeds=SEEDS, steps=LADDER_STEPS, width=WIDTH, blocks=BLOCKS)
def modern_decoder() -> dict:
    """Record language models from the block of 2017 to a modern one."""
    rows = sweep(train_changed, seed=SEEDS, rate=LADDER_RATES, model=CHANGES)
    return {"rows": rows, "changes": CHANGES, "rates": LADDER_RATES}
