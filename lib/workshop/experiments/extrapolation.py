"""Trained at one length, read at eight times as much: every kind of positions.

Source: the question is that of Press et al. (2022), section 1,
    https://arxiv.org/abs/2108.12409; the experiments are ours.
"""

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from attnbook.models.attention_only import (
    HEAD,
    METHODS,
    AttentionOnlyTransformer,
)
from attnbook.positions import context_extension
from workshop.experiments.cores import hold_cores
from workshop.experiments.device import get_device
from workshop.experiments.longer_sequences import (
    LENGTH,
    measure_copying_error,
    measure_reading_loss,
    train,
)
from workshop.experiments.record import CACHE, make_record, write_record
from workshop.experiments.registry import experiment

TIMES, SEEDS = (1, 2, 4, 8), (0, 1, 2)
STEPS = {"copy": 2500, "text": 1200}
MEASURES = {"copy": measure_copying_error, "text": measure_reading_loss}
# What is done to a model trained with rotary positions before it reads texts
# that are s times longer: its frequencies, and a factor.
SCALED: dict[str, Callable[[int], tuple]] = {
    "rope, interpolated": lambda s: (context_extension.interpolate_positions(HEAD, s),),
    "rope, ntk-aware": lambda s: (context_extension.scale_ntk_aware(HEAD, s),),
    "rope, yarn": lambda s: (
        context_extension.scale_yarn(HEAD, s, LENGTH),
        context_extension.yarn_attention_factor(s),
    ),
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
            model.rescale(*settings(times))
            found[method].append(MEASURES[task](model, LENGTH * times))
    return found


def time_rows(seed: int, measure_all: Callable[[], dict]) -> list[dict]:
    """Return a row for each result, with the time that all took on one core."""
    with hold_cores(1):
        wall, cpu = time.perf_counter(), time.process_time()
        found = measure_all()
        spent = {
            "wall_s": time.perf_counter() - wall,
            "cpu_s": time.process_time() - cpu,
        }
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


def resume_jobs(path: Path, settings: dict, jobs: list, run: Callable) -> list:
    """Return the rows of all jobs, those kept in a file not run again."""
    kept: dict = {"settings": settings, "rows": {}}
    if path.exists():
        found = json.loads(path.read_text("utf8"))
        if found["settings"] == settings:
            kept = found
    for job in jobs:
        name = " ".join(map(str, job))
        if name not in kept["rows"]:
            kept["rows"][name] = run(*job)
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_suffix(".part")
            beside.write_text(json.dumps(kept), "utf8")
            beside.replace(path)
    return [row for job in jobs for row in kept["rows"][" ".join(map(str, job))]]


def record_jobs(study: str, task: str, trained: Iterable[str], run: Callable) -> dict:
    """Record all trainings of a study on a task.

    Args:
        study: the beginning of the record's name.
        task: "copy" or "text".
        trained: what one training is called, for each.
        run: from task, training and seed to rows. An interrupted recording
            goes on with the first job whose rows were not stored.
    """
    torch.set_num_threads(1)
    path = CACHE.expanduser() / f"{study}_{task}.json"
    settings = {"steps": STEPS[task], "length": LENGTH, "times": list(TIMES)}
    names = list(trained)
    jobs = [(task, name, seed) for seed in SEEDS for name in names]
    rows = resume_jobs(path, settings | {"on": str(get_device())}, jobs, run)
    trainings = [row for row in rows if row["method"] in names]
    made = make_record(
        f"{study}_{task}",
        list(SEEDS),
        {"rows": rows},
        **settings,
        wall_s=sum(row["wall_s"] for row in trainings),
        cpu_s=sum(row["cpu_s"] for row in trainings),
    )
    write_record(made)
    path.unlink()  # to repeat is to compute again
    return made


@experiment()
def extrapolation_copy() -> dict:
    """Record the share of symbols copied wrong when a sequence is repeated."""
    return record_jobs("extrapolation", "copy", METHODS, train_and_measure)


@experiment()
def extrapolation_text() -> dict:
    """Record the loss on the same characters after more or less text."""
    return record_jobs("extrapolation", "text", METHODS, train_and_measure)
