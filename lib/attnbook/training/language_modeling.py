"""Small language models of the help texts' characters: training, and one trained.

Axes: B batch, T positions
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from safetensors.torch import load_file
from torch import Tensor, nn

from attnbook.data.libreoffice import alphabet, encode_characters
from attnbook.models.devices import find_device, use_seed
from attnbook.models.transformer import LanguageModel, PreNorm, Size
from attnbook.records import WEIGHTS
from attnbook.training.loop import (
    compute_next_token_loss,
    compute_rate_factor,
    optimize,
)

UNKNOWN = "\N{REPLACEMENT CHARACTER}"  # characters that the training texts lack


@dataclass(frozen=True)
class LanguageModelRecipe:
    """The settings with which a small language model is trained."""

    steps: int  # batches
    rate: float  # the highest learning rate; it falls along a cosine
    warmup: float = 0.0  # share of the steps in which the rate rises
    size: int = 32  # windows in a batch
    window: int = 64  # characters read in each
    clip: float | None = None  # largest norm of the gradient


# The model whose weights are shipped: of a recorded run.
RECORD_NAME = "language_model"
MODEL_SIZE = Size(width=72, heads=4, hidden=288, blocks=3, residual=PreNorm)
RECIPE = LanguageModelRecipe(2400, 3e-3, warmup=0.05, window=128, clip=1.0)


def encode_text(text: str) -> Int[Tensor, "1 T"]:
    """Return a text as the ids that a model reads."""
    known = {c: i for i, c in enumerate(alphabet())}
    return torch.tensor([[known.get(c, len(known)) for c in text]])


def decode_text(ids: Iterable[int] | Int[Tensor, " T"]) -> str:
    """Return the text of these ids."""
    letters = (*alphabet(), UNKNOWN)
    return "".join(letters[int(i)] for i in ids)


def cut_windows(
    split: str, starts: Int[Tensor, " B"], length: int
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Return windows of a split's text, and the next symbol at each one."""
    text, _ = encode_characters(split)
    chosen = text[starts[:, None] + torch.arange(length + 1)]
    return chosen[:, :-1], chosen[:, 1:]


def train_language_model(
    model: nn.Module,
    recipe: LanguageModelRecipe,
    seed: int,
    callbacks: Sequence[Callable[[int, float], None]] = (),
) -> None:
    """Train a model; callbacks as in `attnbook.training.loop.optimize`."""
    text, _ = encode_characters("train")
    rng = torch.Generator().manual_seed(seed)
    device, last = find_device(model), len(text) - recipe.window

    def draw_windows() -> tuple[Tensor, ...]:
        starts = torch.randint(last, (recipe.size,), generator=rng)
        made = cut_windows("train", starts, recipe.window)
        return tuple(x.to(device) for x in made)

    optimize(
        torch.optim.Adam(model.parameters(), lr=recipe.rate),
        (draw_windows() for _ in range(recipe.steps)),
        lambda batch: compute_next_token_loss(model(batch[0]), batch[1]),
        lambda step: (
            recipe.rate * compute_rate_factor(step / recipe.steps, recipe.warmup)
        ),
        recipe.clip,
        callbacks,
    )


@torch.no_grad()
def compute_held_out_loss(
    model: nn.Module, split: str, length: int, count: int = 256
) -> float:
    """Return the loss, in nats a character, on evenly spread windows."""
    text, _ = encode_characters(split)
    gap = (len(text) - length - 1) // count
    losses = []
    for starts in (gap * torch.arange(count)).split(64):
        made = cut_windows(split, starts, length)
        read, wanted = (x.to(find_device(model)) for x in made)
        losses.append(
            compute_next_token_loss(model(read), wanted).double() * len(starts)
        )
    return float(torch.stack(losses).sum() / count)


def compute_guessing_losses(split: str = "valid") -> dict[str, float]:
    """Return the loss of uniform guesses and of guesses by frequency."""
    text, symbols = encode_characters("train")
    counts = torch.bincount(text, minlength=symbols).double() + 1
    targets, _ = encode_characters(split)
    chances = (counts / counts.sum())[targets]
    return {
        "even": float(torch.tensor(symbols, dtype=torch.double).log()),
        "frequency": float(-chances.log().mean()),
    }


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
