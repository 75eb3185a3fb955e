"""A character language model with every efficient method.

Source: attention sinks: Xiao et al. (2023), section 3.1,
    https://arxiv.org/abs/2309.17453; the experiment is ours.
Axes: B batch, H heads, T positions
"""

import torch
from torch import Tensor

from attnbook.data.characters import encode_characters
from attnbook.models.devices import find_device
from attnbook.models.sequence_mixers import (
    MIXERS,
    MORE_MIXERS,
    WINDOW,
    GatedMixer,
    MixerModel,
    SequenceMixer,
    SoftmaxMixer,
)
from attnbook.training.language_modeling import (
    compute_guessing_losses,
    compute_held_out_loss,
    cut_windows,
)
from attnbook.training.losses import compute_next_token_loss
from workshop.experiments.efficient_methods import (
    Batch,
    Study,
    record_study,
)
from workshop.experiments.registry import experiment

LENGTH, SIZE, STEPS, TESTED = 256, 8, 400, 128
METHODS = [x for x in MIXERS | MORE_MIXERS if x != "full, rotary"]
EARLY = 8  # the first query whose weights are looked at
SIZES = {"width": 64, "heads": 4, "hidden": 128}


def draw_windows(rng: torch.Generator) -> Batch:
    """Return random windows of the training text and what comes next."""
    last = len(encode_characters("train")[0]) - LENGTH
    starts = torch.randint(last, (SIZE,), generator=rng)
    return cut_windows("train", starts, LENGTH)


def draw_test_windows(model: MixerModel) -> Batch:
    """Return evenly spread windows of the test text, and what comes next."""
    gap = (len(encode_characters("test")[0]) - LENGTH - 1) // TESTED
    made = cut_windows("test", gap * torch.arange(TESTED), LENGTH)
    return made[0].to(find_device(model)), made[1].to(find_device(model))


def validate(model: MixerModel) -> float:
    """Return the loss on the validation text, in nats a character."""
    return compute_held_out_loss(model, "valid", LENGTH, TESTED)


def measure_losses(model: MixerModel) -> dict[str, float | list[float]]:
    """Return the test loss, also by position, and what attention looks at."""
    ids, wanted = draw_test_windows(model)
    logits = model(ids)
    parts = [
        float(compute_next_token_loss(some, targets))
        for some, targets in zip(
            logits.split(WINDOW, dim=1),
            wanted.split(WINDOW, dim=1),
            strict=True,
        )
    ]
    return {
        "loss": float(compute_next_token_loss(logits, wanted)),
        "loss_by_position": parts,
        **look_at_first_token(model, ids),
    }


def look_at_first_token(model: MixerModel, ids: Tensor) -> dict[str, list[float]]:
    """Return the mean weights on the first token and on a sink, by block.

    "first_early" is of queries that still see the first token in a window,
    "first_late" of all later ones; "sink" is what the weights lack to a sum of
    1, and "gate" the mean gate. A method without them has none of these.
    """
    found: dict[str, list[float]] = {}

    def note(name: str, value: Tensor) -> None:
        found.setdefault(name, []).append(float(value.mean()))

    def look(mixer: SequenceMixer, inputs: tuple, _) -> None:
        if isinstance(mixer, SoftmaxMixer):
            query, key, _ = mixer.project(inputs[0])
            weights = mixer.weights(query, key)
            note("first_early", weights[..., EARLY:WINDOW, 0])
            note("first_late", weights[..., WINDOW:, 0])
            note("sink", (1 - weights.sum(-1)).clamp(min=0))
        if isinstance(mixer, GatedMixer):
            note("gate", mixer.gate(inputs[0]).sigmoid())

    hooks = [b.mixer.register_forward_hook(look) for b in model.blocks]
    model(ids[:32])
    for hook in hooks:
        hook.remove()
    return found


def make_study() -> Study:
    """Return the study, whose symbols are those of the training text."""
    sizes = SIZES | {"symbols": encode_characters("train")[1]}
    return Study(sizes, STEPS, draw_windows, validate, measure_losses)


@experiment()
def efficient_language_model() -> dict:
    """Record the loss of every method on held-out text."""
    return record_study(
        "efficient_language_model",
        make_study(),
        METHODS,
        {"guesses": compute_guessing_losses("test")},
        length=LENGTH,
        size=SIZE,
        tested=TESTED,
        early=EARLY,
    )
