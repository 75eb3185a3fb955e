"""Recording a run: train, round the weights, score, write it down."""

import json
import os
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import wraps
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from attnbook.models.encoder_decoder import count_parameters
from attnbook.records import RECORDS, WEIGHTS
from attnbook.training.loop import Trainer
from workshop.experiments.machine import describe_device, get_device, hold_cores
from workshop.experiments.registry import RUNS, experiment
from workshop.experiments.scoring import make_validation_metrics, score_test_set

CORES = os.cpu_count() or 1
CACHE = Path(os.environ.get("ATTNBOOK_CACHE", "~/.cache/attnbook"))


def make_record(name: str, seeds: list[int], results: dict, **more) -> dict:
    """Return a record: what ran, where and with what, and what came out."""
    packages = ("torch", "numpy", "sacrebleu", "sentencepiece")
    device = get_device()
    option = "" if device.type == "cpu" else f" --device {device}"
    return {
        "name": name,
        "command": f"python -m workshop.experiments {name}{option}",
        "seeds": seeds,
        "device": describe_device(device, read_processor_name()),
        "versions": {"python": platform.python_version()}
        | {p: version(p) for p in packages},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **more,
        "results": results,
    }


def time_call(call: Callable[[], dict]) -> tuple[dict, dict[str, float]]:
    """Return what a call returns, and the seconds that it takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = call()
    return found, {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
    }


def record_results(
    name: str,
    seeds: Iterable[int],
    measure: Callable[[], dict],
    threads: int = 1,
    cores: int = 1,
    **more,
) -> dict:
    """Measure on some threads, write the record, and return it.

    Args:
        name: of the record.
        seeds: that the results depend on.
        measure: returns the results.
        threads: how many PyTorch uses.
        cores: how many are held meanwhile: all of them for a timing.
        more: further fields of the record.
    """
    torch.set_num_threads(threads)
    with hold_cores(cores):
        results, spent = time_call(measure)
    more = {"threads": threads, **more, **spent}
    made = make_record(name, [*seeds], results, **more)
    write_record(made)
    return made


def recorded(
    seeds: Iterable[int], on_cpu: bool = False, **settings: Any
) -> Callable[[Callable[[], dict]], Callable[[], dict]]:
    """Register a function that measures as the experiment of its name.

    Called, it measures and writes its record as well; `seeds` are those that the
    results depend on, and `settings` the others of `record_results`.
    """

    def decorate(measure: Callable[[], dict]) -> Callable[[], dict]:
        @wraps(measure)
        def run() -> dict:
            return record_results(measure.__name__, seeds, measure, **settings)

        return experiment(on_cpu)(run)

    return decorate


def run_jobs(name: str, settings: dict, jobs: list[tuple], run: Callable) -> list:
    """Return the rows of all jobs of a record, those of an earlier try kept."""
    torch.set_num_threads(1)
    path = CACHE.expanduser() / f"{name}.json"
    settings = settings | {"on": str(get_device())}
    kept: dict = {"settings": settings, "rows": {}}
    if path.exists():
        found = json.loads(path.read_text("utf8"))
        kept = found if found["settings"] == settings else kept
    titles = [" ".join(map(str, job)) for job in jobs]
    for title, job in zip(titles, jobs, strict=True):
        if title not in kept["rows"]:
            kept["rows"][title] = run(*job)
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_suffix(".part")
            beside.write_text(json.dumps(kept), "utf8")
            beside.replace(path)
    return [row for title in titles for row in kept["rows"][title]]


def record_rows(
    name: str, seeds: Iterable[int], results: dict, timed: Iterable[dict], **more
) -> dict:
    """Write the record of jobs that are done, with the time that they took."""
    timed = list(timed)
    spent = {k: sum(row[k] for row in timed) for k in ("wall_s", "cpu_s")}
    made = make_record(name, [*seeds], results, **more, **spent)
    write_record(made)
    # To repeat is to compute again.
    (CACHE.expanduser() / f"{name}.json").unlink()
    return made


def sweep(measure: Callable[..., dict], **settings: Iterable) -> list[dict]:
    """Return a row for each combination of settings, the last changing fastest."""
    rows = []
    for values in product(*settings.values()):
        chosen = dict(zip(settings, values, strict=True))
        rows.append(chosen | measure(**chosen))
    return rows


def read_processor_name() -> str:
    """Return the name of this machine's processor, as far as it is told."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write_record(record_run: dict) -> Path:
    """Write a record; lists of numbers stay on one line each.

    It is written beside and moved, so that the old one stays until then.
    """
    path = RECORDS / f"{record_run['name']}.json"
    body = ",\n".join(
        f" {json.dumps(k)}: {format_rows(v)}" for k, v in record_run.items()
    )
    beside = path.with_suffix(".part")
    beside.write_text(f"{{\n{body}\n}}\n", "utf8")
    beside.replace(path)
    return path


def save_weights(model: nn.Module, name: str) -> None:
    """Write a model's weights in half precision, beside and then moved."""
    half = {k: v.half().cpu() for k, v in model.state_dict().items()}
    path = WEIGHTS / f"{name}.safetensors"
    save_file(half, path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)


def format_rows(value) -> str:
    """Return JSON: a list of dicts one a line, everything else on one line."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n  " + ",\n  ".join(map(format_plain, value)) + "\n ]"
    if isinstance(value, dict) and value:
        inner = (f"  {json.dumps(k)}: {format_plain(v)}" for k, v in value.items())
        return "{\n" + ",\n".join(inner) + "\n }"
    return format_plain(value)


def format_plain(value) -> str:
    """Return JSON on one line, numbers to 6 significant digits."""
    return json.dumps(round_floats(value), ensure_ascii=False)


def round_floats(value):
    """Return the value with every float to 6 significant digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {k: round_floats(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [round_floats(v) for v in value]
    return value


def round_to_half(model: nn.Module) -> None:
    """Round the weights to half precision, as they are stored."""
    model.load_state_dict({k: v.half().float() for k, v in model.state_dict().items()})


def record_run(name: str, progress: bool = True) -> dict:
    """Train and score a run, going on where an earlier try stopped.

    A GPU has a checkpoint of its own: no run is trained on two devices.
    """
    run, device = RUNS[name], get_device()
    torch.set_num_threads(1)
    data, model = run.data(), run.model().to(device)
    kept = name if device.type == "cpu" else f"{name}-{device.type}"
    trainer = Trainer(
        model,
        data.encode(data.splits.train[:: run.every]),
        data.encode(data.splits.valid),
        run.recipe,
        make_validation_metrics(run.task, data),
    )
    with hold_cores(1):
        history = trainer.run(CACHE.expanduser() / f"{kept}.safetensors", progress)
        round_to_half(model)
        begun = time.process_time()
        results = score_test_set(run.task, data, model, run.attention)
    made = make_record(
        name,
        [run.recipe.seed],
        results,
        task=run.task,
        model={k: v for k, v in asdict(run).items() if k != "recipe"},
        recipe=asdict(run.recipe),
        epochs=len(history),
        parameters=count_parameters(model),
        wall_s=sum(h["wall_s"] for h in history),
        cpu_s=sum(h["cpu_s"] for h in history),
        scoring_cpu_s=time.process_time() - begun,
        history=history,
    )
    write_record(made)
    if run.ship:
        save_weights(model, name)
    return made
