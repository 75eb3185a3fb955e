"""RoPE with other bases, on half of the columns, and rescaled in other ways.

The model, tasks, steps and seeds are those of `extrapolation`; only the
frequencies of the rotations differ.

Source: the question is that of Press et al. (2022), section 1,
    https://arxiv.org/abs/2108.12409; the experiments are ours.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.models.attention_only import HEAD, AttentionOnlyTransformer
from attnbook.positions.absolute import frequencies
from attnbook.positions.context_extension import (
    interpolate_positions,
    scale_llama3,
    scale_yarn,
)
from workshop.experiments.extrapolation import (
    MEASURES,
    STEPS,
    TIMES,
    measure,
    record_jobs,
    time_rows,
)
from workshop.experiments.longer_sequences import LENGTH, train
from workshop.experiments.registry import experiment

USUAL = "base 10,000"
# What a model is trained with: one frequency for each pair of columns. A
# frequency of 0 leaves a pair unrotated.
SETTINGS = {
    "base 10": frequencies(HEAD, 10.0),
    USUAL: frequencies(HEAD),
    "base 1,000,000": frequencies(HEAD, 1e6),
    "half of the columns": torch.cat([frequencies(HEAD // 2), torch.zeros(HEAD // 4)]),
}
PARTS = ("all pairs", "fast pairs", "slow pairs")


def rescale_part(part: str, factor: int) -> Float[Tensor, "P"]:
    """Return frequencies of which all, the fast or the slow are divided.

    Slow pairs complete less than one rotation within the trained length.
    """
    rates = frequencies(HEAD)
    slow = rates * LENGTH < 2 * torch.pi
    chosen = {"all pairs": slow | ~slow, "fast pairs": ~slow}.get(part, slow)
    return torch.where(chosen, interpolate_positions(HEAD, factor), rates)


def measure_rescaled(
    task: str, model: AttentionOnlyTransformer
) -> dict[str, list[float]]:
    """Return a usual model's results with its frequencies changed.

    By length: Llama 3.1's scaling, and YaRN's without its attention factor.
    At the trained length and at twice it: parts of the pairs divided by two.
    """
    found: dict[str, list[float]] = {"llama-3": [], "yarn, scores unscaled": []}
    for times in TIMES:
        for name, rates in (
            ("llama-3", scale_llama3(HEAD, times, LENGTH, 1e4)),
            ("yarn, scores unscaled", scale_yarn(HEAD, times, LENGTH)),
        ):
            model.rescale(rates)
            found[name].append(MEASURES[task](model, LENGTH * times))
    for part in PARTS:
        model.rescale(rescale_part(part, 2))
        found[f"{part} halved"] = [
            MEASURES[task](model, LENGTH * times) for times in (1, 2)
        ]
    return found


def train_and_measure(task: str, setting: str, seed: int) -> list[dict]:
    """Train once and measure at every length; the usual base rescaled, too."""

    def measure_all() -> dict:
        model = train(
            task,
            "rope",
            seed,
            STEPS[task],
            lambda model: model.rescale(SETTINGS[setting]),
        )
        rescaled = measure_rescaled(task, model) if setting == USUAL else {}
        return {setting: measure(task, model)} | rescaled

    return time_rows(seed, measure_all)


@experiment()
def rotary_settings_copy() -> dict:
    """Record the share of symbols copied wrong for each setting."""
    return record_jobs("rotary_settings", "copy", SETTINGS, train_and_measure)


@experiment()
def rotary_settings_text() -> dict:
    """Record the loss on the same characters for each setting."""
    return record_jobs("rotary_settings", "text", SETTINGS, train_and_measure)
