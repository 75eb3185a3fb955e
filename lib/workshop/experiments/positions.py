"""Positional encodings on sequences longer than those trained on.

Source: the question is that of Press et al. (2022), section 1,
    https://arxiv.org/abs/2108.12409; copying is a task of Kazemnejad et
    al. (2023), https://arxiv.org/abs/2305.19466. The experiments are ours.
Axes: B batch, T positions
"""

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.data.libreoffice import encode_characters
from attnbook.models.attention_only import HEAD, METHODS, AttentionOnlyTransformer
from attnbook.models.devices import find_device, use_seed
from attnbook.positions.absolute import frequencies
from attnbook.positions.rotary import (
    interpolate_positions,
    scale_llama3,
    scale_ntk_aware,
)
from attnbook.training.loop import IGNORED_TARGET, compute_next_token_loss, optimize
from workshop.experiments.machine import get_device, hold_cores
from workshop.experiments.record import record_rows, run_jobs, time_call
from workshop.experiments.registry import experiment

LENGTH, LONGEST = 64, 512  # trained on, and read


SYMBOLS = 256  # of the copying task; one more marks the middle


SIZE, RATE = 32, 3e-3


def draw_copying(
    count: int, half: int, rng: torch.Generator
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Return texts of different symbols, a mark, and the same again.

    Returns:
        What is read, and what should come next: IGNORED in the first half.
    """
    order = torch.rand(count, SYMBOLS, generator=rng).argsort(dim=1)
    part = order[:, :half]
    mark = torch.full((count, 1), SYMBOLS)
    whole = torch.cat([part, mark, part], dim=1)
    wanted = whole[:, 1:].clone()
    wanted[:, :half] = IGNORED_TARGET
    return whole[:, :-1], wanted


def draw_reading(
    count: int, rng: torch.Generator
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Return random windows of the training text and what comes next."""
    text, _ = encode_characters("train")
    starts = torch.randint(len(text) - LENGTH, (count, 1), generator=rng)
    windows = text[starts + torch.arange(LENGTH + 1)]
    return windows[:, :-1], windows[:, 1:]


def draw_batch(task: str, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return a batch to train on; none is longer than LENGTH."""
    if task == "text":
        return draw_reading(SIZE, rng)
    half = int(torch.randint(4, LENGTH // 2 + 1, (), generator=rng))
    return draw_copying(SIZE, half, rng)


def train(
    task: str,
    method: str,
    seed: int,
    steps: int,
    prepare: Callable[[AttentionOnlyTransformer], None] = lambda model: None,
) -> AttentionOnlyTransformer:
    """Return a trained model; the rate falls along a straight line to 0."""
    symbols = SYMBOLS + 1 if task == "copy" else encode_characters("train")[1]
    with use_seed(seed):
        model = AttentionOnlyTransformer(symbols, method, LONGEST).to(get_device())
    prepare(model)
    rng = torch.Generator().manual_seed(seed)

    def compute_loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        text, wanted = (x.to(get_device()) for x in batch)
        return compute_next_token_loss(model(text), wanted)

    optimize(
        torch.optim.Adam(model.parameters(), lr=RATE),
        (draw_batch(task, rng) for _ in range(steps)),
        compute_loss,
        lambda step: RATE * (1 - step / steps),
    )
    return model


@torch.no_grad()
def measure_copying_error(model: nn.Module, length: int, count: int = 64) -> float:
    """Return the share of symbols copied wrong in texts of this length."""
    rng = torch.Generator().manual_seed(10**6)
    wrong = []
    for _ in range(count // 16):
        made = draw_copying(16, length // 2, rng)
        text, wanted = (x.to(find_device(model)) for x in made)
        predicted = model(text).argmax(-1)
        wrong.append((predicted != wanted)[wanted != IGNORED_TARGET].double().mean())
    return float(torch.stack(wrong).mean())


@torch.no_grad()
def measure_reading_loss(model: nn.Module, length: int, count: int = 128) -> float:
    """Return the loss, in nats, of the same characters after more or less text.

    Asked are `count` stretches of LENGTH characters of the test text; the
    model reads each after as much of the text before as makes it `length`.
    """
    text, _ = encode_characters("test")
    gap = (len(text) - LONGEST - 1) // count
    ends = LONGEST + gap * torch.arange(count)
    losses = []
    for some in ends.split(16):
        windows = text[some[:, None] + torch.arange(-length, 1)]
        windows = windows.to(find_device(model))
        logits = model(windows[:, :-1])[:, -LENGTH:]
        losses.append(compute_next_token_loss(logits, windows[:, -LENGTH:]).double())
    return float(torch.stack(losses).mean())


TIMES, SEEDS = (1, 2, 4, 8), (0, 1, 2)
STEPS = {"copy": 2500, "text": 1200}
MEASURES = {"copy": measure_copying_error, "text": measure_reading_loss}
# What is done to a model trained with rotary positions before it reads texts
# that are s times longer: its frequencies.
SCALED: dict[str, Callable[[int], Tensor]] = {
    "rope, interpolated": lambda s: interpolate_positions(HEAD, s),
    "rope, ntk-aware": lambda s: scale_ntk_aware(HEAD, s),
}


def measure(task: str, model: AttentionOnlyTransformer) -> list[float]:
    """Return the error or loss at each length."""
    return [MEASURES[task](model, LENGTH * times) for times in TIMES]


def measure_scaled(
    task: str, model: AttentionOnlyTransformer
) -> dict[str, list[float]]:
    """Return the same for each method of scaling rotary positions."""
    found: dict[str, list[float]] = {}
    for method, settings in SCALED.items():
        found[method] = []
        for times in TIMES:
            model.rescale(settings(times))
            found[method].append(MEASURES[task](model, LENGTH * times))
    return found


def time_rows(seed: int, measure_all: Callable[[], dict]) -> list[dict]:
    """Return a row for each result, with the time that all took on one core."""
    with hold_cores(1):
        found, spent = time_call(measure_all)
    return [
        {"method": method, "seed": seed, "found": numbers, **spent}
        for method, numbers in found.items()
    ]


def train_and_measure(task: str, method: str, seed: int) -> list[dict]:
    """Train once and measure; rotary positions with every scaling method."""

    def measure_all() -> dict:
        model = train(task, method, seed, STEPS[task])
        scaled = measure_scaled(task, model) if method == "rope" else {}
        return {method: measure(task, model)} | scaled

    return time_rows(seed, measure_all)


def record_jobs(study: str, task: str, trained: Iterable[str], run: Callable) -> dict:
    """Record all trainings of a study on a task.

    Args:
        study: the beginning of the record's name.
        task: "copy" or "text".
        trained: what one training is called, for each.
        run: from task, training and seed to rows. An interrupted recording
            goes on with the first job whose rows were not stored.
    """
    name = f"{study}_{task}"
    settings = {"steps": STEPS[task], "length": LENGTH, "times": list(TIMES)}
    names = list(trained)
    jobs = [(task, one, seed) for seed in SEEDS for one in names]
    rows = run_jobs(name, settings, jobs, run)
    trainings = [row for row in rows if row["method"] in names]
    return record_rows(name, SEEDS, {"rows": rows}, trainings, **settings)


@experiment()
def extrapolation_copy() -> dict:
    """Record the share of symbols copied wrong when a sequence is repeated."""
    return record_jobs("extrapolation", "copy", METHODS, train_and_measure)


@experiment()
def extrapolation_text() -> dict:
    """Record the loss on the same characters after more or less text."""
    return record_jobs("extrapolation", "text", METHODS, train_and_measure)


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

    By length: Llama 3.1's scaling.
    At the trained length and at twice it: parts of the pairs divided by two.
    """
    found: dict[str, list[float]] = {"llama-3": []}
    for times in TIMES:
        model.rescale(scale_llama3(HEAD, times, LENGTH, 1e4))
        found["llama-3"].append(MEASURES[task](model, LENGTH * times))
    for part in PARTS:
        model.rescale(rescale_part(part, 2))
        found[f"{part} halved"] = [
            MEASURES[task](model, LENGTH * times) for times in (1, 2)
        ]
    return found


def train_with_setting(task: str, setting: str, seed: int) -> list[dict]:
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
    """Record the share of symbols copied wrong for each setting.

    The model, tasks, steps and seeds are those of `extrapolation`; only the
    frequencies of the rotations differ.

    Source: the question is that of Press et al. (2022), section 1,
        https://arxiv.org/abs/2108.12409; the experiments are ours.
    """
    return record_jobs("rotary_settings", "copy", SETTINGS, train_with_setting)


@experiment()
def rotary_settings_text() -> dict:
    """Record the loss on the same characters for each setting."""
    return record_jobs("rotary_settings", "text", SETTINGS, train_with_setting)
