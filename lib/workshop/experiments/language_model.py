"""A small language model of the help texts, shipped: a decoder alone.

Axes: T positions
"""

from attnbook.data.characters import encode_characters
from attnbook.models.encoder_decoder import count_parameters
from attnbook.training.character_model import (
    RECIPE,
    RECORD_NAME,
    build_character_model,
)
from attnbook.training.language_modeling import (
    compute_guessing_losses,
    compute_held_out_loss,
    train_language_model,
)
from workshop.experiments.device import get_device
from workshop.experiments.record import (
    record_results,
    round_to_half,
    save_weights,
)
from workshop.experiments.registry import experiment

EVERY = 100  # steps between two looks at the held-out text


@experiment()
def language_model() -> dict:
    """Record the training of the model, and keep its weights."""
    model = build_character_model().to(get_device())

    def run() -> dict:
        curve: list[dict] = []
        recent: list[float] = []

        def each(step: int, loss: float) -> None:
            recent.append(loss)
            if (step + 1) % EVERY == 0:
                point = {"step": step + 1, "train_loss": sum(recent) / EVERY}
                point["valid_loss"] = compute_held_out_loss(
                    model, "valid", RECIPE.window
                )
                curve.append(point)
                recent.clear()

        train_language_model(model, RECIPE, 0, [each])
        round_to_half(model)
        return {
            "curve": curve,
            "test_loss": compute_held_out_loss(model, "test", RECIPE.window),
            "guesses": compute_guessing_losses("test"),
        }

    made = record_results(
        RECORD_NAME,
        [0],
        run,
        **vars(RECIPE),
        symbols=encode_characters("train")[1],
        parameters=count_parameters(model),
    )
    save_weights(model, RECORD_NAME)
    return made
