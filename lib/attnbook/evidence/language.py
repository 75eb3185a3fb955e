"""A small language model of the help texts, shipped: a decoder alone.

Chapter: chapters/09_transformer
Source: none
Axes: T positions
"""

import torch
from safetensors.torch import load_file, save_file

from attnbook.encoder_decoder import parameters
from attnbook.evidence import RECORDS
from attnbook.evidence.longer_texts import characters
from attnbook.evidence.readers import Course, fit, held_out, loss_by_guess
from attnbook.evidence.record import halve
from attnbook.evidence.scaling import timed
from attnbook.language_model import LanguageModel
from attnbook.transformer import Size
from attnbook.transformer_blocks import PreNorm

NAME = "language_model"
SIZE = Size(width=72, heads=4, hidden=288, blocks=3, around=PreNorm)
COURSE = Course(2400, 3e-3, warmup=0.05, window=128, clip=1.0)
EVERY = 100  # steps between two looks at the held-out text


def made_of(seed: int = 0, size: Size = SIZE) -> LanguageModel:
    """Return a language model of characters, from a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LanguageModel(characters("train")[1], size)


def shipped() -> LanguageModel:
    """Return the model with the recorded weights."""
    model = made_of()
    stored = load_file(RECORDS / f"{NAME}.safetensors")
    model.load_state_dict({k: v.float() for k, v in stored.items()})
    return model.eval()


def language_model() -> dict:
    """Record the training of the model, and keep its weights."""
    model = made_of()

    def run() -> dict:
        curve: list[dict] = []
        recent: list[float] = []

        def each(step: int, loss: float) -> None:
            recent.append(loss)
            if (step + 1) % EVERY == 0:
                point = {"step": step + 1, "train_loss": sum(recent) / EVERY}
                point["valid_loss"] = held_out(model, "valid", COURSE.window)
                curve.append(point)
                recent.clear()

        fit(model, COURSE, 0, each)
        halve(model)
        return {
            "curve": curve,
            "test_loss": held_out(model, "test", COURSE.window),
            "guesses": loss_by_guess("test"),
        }

    made = timed(
        NAME,
        [0],
        run,
        **vars(COURSE),
        symbols=characters("train")[1],
        parameters=parameters(model),
    )
    half = {k: v.half() for k, v in model.state_dict().items()}
    save_file(half, RECORDS / f"{NAME}.safetensors")
    return made
