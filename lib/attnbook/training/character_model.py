"""A small language model of the help texts' characters, with its weights.

Axes: T positions
"""

from safetensors.torch import load_file

from attnbook.data.characters import encode_characters
from attnbook.models.devices import use_seed
from attnbook.models.transformer import LanguageModel, PreNorm, Size
from attnbook.records import WEIGHTS
from attnbook.training.language_modeling import (
    LanguageModelRecipe,
)

RECORD_NAME = "language_model"


MODEL_SIZE = Size(width=72, heads=4, hidden=288, blocks=3, residual=PreNorm)


RECIPE = LanguageModelRecipe(2400, 3e-3, warmup=0.05, window=128, clip=1.0)


def build_character_model(seed: int = 0, size: Size = MODEL_SIZE) -> LanguageModel:
    """Return a language model of characters, from a seed."""
    with use_seed(seed):
        return LanguageModel(encode_characters("train")[1], size)


def load_character_model() -> LanguageModel:
    """Return the model with the recorded weights."""
    model = build_character_model()
    stored = load_file(WEIGHTS / f"{RECORD_NAME}.safetensors")
    model.load_state_dict({k: v.float() for k, v in stored.items()})
    return model.eval()
