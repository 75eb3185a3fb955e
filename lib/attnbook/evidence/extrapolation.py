"""Trained at one length, read at eight times as much: every kind of positions.

Chapter: chapters/08_positions
Source: the question is that of Press et al. (2022), section 1,
    https://arxiv.org/abs/2108.12409; the experiments are ours.
Axes: none
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

import torch

from attnbook.attention_only import HEAD, METHODS, AttentionOnly
from attnbook.evidence.longer_texts import (
    LENGTH,
    copying_error,
    reading_loss,
    train,
)
from attnbook.evidence.record import CACHE, note, write
from attnbook.evidence.turns import turn
from attnbook.positions import scaling

TIMES, SEEDS = (1, 2, 4, 8), (0, 1, 2)
STEPS = {"copy": 2500, "text": 1200}
MEASURES = {"copy": copying_error, "text": reading_loss}
# What is done to a model trained with rotary positions before it reads texts
# that are s times longer: its frequencies, and a factor.
SCALED: dict[str, Callable[[int], tuple]] = {
    "rope, interpolated": lambda s: (scaling.interpolated(HEAD, s),),
    "rope, ntk-aware": lambda s: (scaling.ntk_aware(HEAD, s),),
    "rope, yarn": lambda s: (
        scaling.yarn(HEAD, s, LENGTH),
        scaling.yarn_scale(s),
    ),
}


def measured(task: str, model: AttentionOnly) -> list[float]:
    """Return the error or loss at each length."""
    return [MEASURES[task](model, LENGTH * times) for times in TIMES]


def scaled(task: str, model: AttentionOnly) -> dict[str, list[float]]:
    """Return the same for each way of scaling rotary positions."""
    found: dict[str, list[float]] = {}
    for way, settings in SCALED.items():
        found[way] = []
        for times in TIMES:
            model.rescale(*settings(times))
            found[way].append(MEASURES[task](model, LENGTH * times))
    return found


def one(task: str, method: str, seed: int) -> list[dict]:
    """Train once and measure; with rotary positions, in every way."""
    with turn(1):
        wall, cpu = time.perf_counter(), time.process_time()
        model = train(task, method, seed, STEPS[task])
        found = {method: measured(task, model)}
        if method == "rope":
            found |= scaled(task, model)
        spent = {
            "wall_s": time.perf_counter() - wall,
            "cpu_s": time.process_time() - cpu,
        }
    return [
        {"method": way, "seed": seed, "found": numbers, **spent}
        for way, numbers in found.items()
    ]


def resumed(path: Path, settings: dict, jobs: list, run: Callable) -> list:
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
            path.write_text(json.dumps(kept), "utf8")
    return [
        row for job in jobs for row in kept["rows"][" ".join(map(str, job))]
    ]


def extrapolation(task: str) -> dict:
    """Record all methods on a task; an interrupted recording goes on."""
    torch.set_num_threads(1)
    path = CACHE.expanduser() / f"extrapolation_{task}.json"
    settings = {"steps": STEPS[task], "length": LENGTH, "times": list(TIMES)}
    jobs = [(task, method, seed) for seed in SEEDS for method in METHODS]
    rows = resumed(path, settings, jobs, one)
    trainings = [row for row in rows if row["method"] in METHODS]
    made = note(
        f"extrapolation_{task}",
        list(SEEDS),
        {"rows": rows},
        **settings,
        wall_s=sum(row["wall_s"] for row in trainings),
        cpu_s=sum(row["cpu_s"] for row in trainings),
    )
    write(made)
    path.unlink()  # to repeat is to compute again
    return made


def extrapolation_copy() -> dict:
    """Record the share of symbols said wrong when a text is said again."""
    return extrapolation("copy")


def extrapolation_text() -> dict:
    """Record the loss on the same characters after more or less text."""
    return extrapolation("text")
