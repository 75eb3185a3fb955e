"""From the decoder block of 2017 to a modern one, one change at a time.

Source: the changes are those of the chapter; the experiments are ours.
Axes: C model width, D width of a head
"""

from itertools import product

from attnbook.attention.grouped_query import GroupedQueryAttention
from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.data.characters import encode_characters
from attnbook.models.devices import use_seed
from attnbook.models.encoder_decoder import count_parameters
from attnbook.models.language_model import LanguageModel
from attnbook.models.layer_norm import RMSNorm
from attnbook.models.modern_block import (
    ModernAttention,
    RotaryAttention,
    SwiGLU,
    TokenEmbedding,
)
from attnbook.models.transformer import Size
from attnbook.models.transformer_blocks import PostNorm, PreNorm
from attnbook.training.language_modeling import (
    LanguageModelRecipe,
    compute_held_out_loss,
    train_language_model,
)
from workshop.experiments.device import get_device
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment

# Each model has the changes of the one before, and one more.
CHANGES = (
    "block of 2017",
    "pre-norm",
    "RMSNorm",
    "SwiGLU",
    "RoPE",
    "grouped queries",
    "no biases",
    "QK-norm",
)
WIDTH, HEADS, GROUPS, HIDDEN, BLOCKS = 48, 4, 2, 192, 2
RATES, SEEDS, STEPS, WINDOW = (3e-3, 1e-2), (0, 1, 2), 240, 64
RECIPE = {"warmup": 0.05, "clip": 1.0, "window": WINDOW}


class PreRMSNorm(PreNorm):
    """Pre-norm residual connection with RMSNorm: x + sublayer(norm(x))."""

    def __init__(self, width: int, dropout: float = 0.0):
        super().__init__(width, dropout)
        self.norm = RMSNorm(width)

    @staticmethod
    def make_final_norm(width: int) -> RMSNorm:
        """Return the layer after the last block."""
        return RMSNorm(width)


def build_attention(made: set[str]) -> MultiHeadAttention:
    """Return the attention that has these changes."""
    if "QK-norm" in made:
        return ModernAttention(WIDTH, HEADS, GROUPS)
    groups = GROUPS if "grouped queries" in made else HEADS
    kind = RotaryAttention if "RoPE" in made else GroupedQueryAttention
    return kind(WIDTH, HEADS, groups, bias="no biases" not in made)


def build_model(last: str, seed: int) -> LanguageModel:
    """Return the model with all changes up to the last one."""
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
    return model.to(get_device())


def train_and_measure(last: str, rate: float, seed: int) -> dict:
    """Train once; return what the model is and how well it predicts."""
    model = build_model(last, seed)
    groups = model.blocks[0].attention.groups
    train_language_model(model, LanguageModelRecipe(STEPS, rate, **RECIPE), seed)
    return {
        "model": last,
        "rate": rate,
        "seed": seed,
        "parameters": count_parameters(model),
        "cache": 2 * groups * WIDTH // HEADS * BLOCKS,
        "valid_loss": compute_held_out_loss(model, "valid", WINDOW),
        "test_loss": compute_held_out_loss(model, "test", WINDOW),
    }


@experiment()
@recorded(seeds=SEEDS, steps=STEPS, width=WIDTH, blocks=BLOCKS)
def modern_decoder() -> dict:
    """Record language models from the block of 2017 to a modern one."""
    chosen = product(SEEDS, RATES, CHANGES)
    rows = [train_and_measure(last, rate, seed) for seed, rate, last in chosen]
    return {"rows": rows, "changes": CHANGES, "rates": RATES}
