"""Recording a run: find it, train or measure, write down what came out.

A function that measures something is decorated with `recorded`; training runs that
share one procedure are given to `register_runs`. `find_experiments` imports every
module of this package, so that a new theme is one new file. Under torchrun, training
runs divide every batch over its processes, of which the first one writes the record.
"""

import importlib
import json
import pkgutil
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
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

from attnbook.models.recurrent import count_parameters
from attnbook.records import RECORDS, WEIGHTS
from attnbook.training.loop import Trainer, find_rank
from attnbook.training.run import Run
from attnbook.training.tasks import Task
from workshop.experiments.scoring import score_test_set

CPU = torch.device("cpu")
EXPERIMENTS: dict[str, Callable[[], dict]] = {}
RUNS: dict[str, Run] = {}


def register(name: str, run: Any, kind: dict[str, Any]) -> None:
    """Give a run its name, in EXPERIMENTS or RUNS; a ValueError if it is taken."""
    if name in EXPERIMENTS or name in RUNS:
        raise ValueError(f"two experiments are named {name!r}")
    kind[name] = run


def find_experiments() -> list[str]:
    """Import every module of this package; return the names registered."""
    package = __name__.rpartition(".")[0]
    for found in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if found.name != "__main__":
            importlib.import_module(f"{package}.{found.name}")
    return [*RUNS, *EXPERIMENTS]


def recorded(
    seeds: Iterable[int], threads: int = 1, **settings: Any
) -> Callable[[Callable[[], dict]], Callable[[], dict]]:
    """Register a function that measures as the experiment of its name.

    Called, it measures and writes its record as well; `seeds` are those that the
    results depend on, and `settings` more fields of the record.
    """

    def decorate(measure: Callable[[], dict]) -> Callable[[], dict]:
        name = measure.__name__

        @wraps(measure)
        def run() -> dict:
            torch.set_num_threads(threads)
            wall, cpu = time.perf_counter(), time.process_time()
            results = measure()
            more = {"threads": threads, **settings}
            more["wall_s"] = time.perf_counter() - wall
            more["cpu_s"] = time.process_time() - cpu
            made = make_record(name, [*seeds], results, **more)
            write_record(made)
            return made

        register(name, run, EXPERIMENTS)
        return run

    return decorate


def train_run(
    run: Run, progress: bool = False, device: torch.device = CPU
) -> tuple[Task, nn.Module, list[dict]]:
    data, model = run.data(), run.model().to(device)
    train = data.encode(data.splits.train[:: run.every])
    trainer = Trainer(model, train, data.encode(data.splits.valid), run.recipe)
    return data, model, trainer.run(progress)


def record_run(name: str, progress: bool = True, device: torch.device = CPU) -> dict:
    """Train a run on a device and score it on the CPU."""
    run = RUNS[name]
    torch.set_num_threads(1)
    data, model, history = train_run(run, progress, device)
    round_to_half(model.cpu())
    made = make_record(
        name,
        [run.recipe.seed],
        score_test_set(run.task, data, model, run.attention),
        task=run.task,
        model={k: v for k, v in asdict(run).items() if k != "recipe"},
        recipe=asdict(run.recipe),
        epochs=len(history),
        parameters=count_parameters(model),
        wall_s=sum(h["wall_s"] for h in history),
        cpu_s=sum(h["cpu_s"] for h in history),
        history=history,
    )
    write_record(made)
    if run.ship:
        save_weights(model, name)
    return made


def make_record(name: str, seeds: list[int], results: dict, **more) -> dict:
    """Return a record: what ran, where and with what, and what came out."""
    packages = ("torch", "numpy", "sacrebleu", "sentencepiece")
    ranks = find_rank()[1]
    start = "python" if ranks == 1 else f"torchrun --nproc-per-node {ranks}"
    return {
        "name": name,
        "command": f"{start} -m workshop.experiments {name}",
        "seeds": seeds,
        "device": f"{read_processor_name()}, {torch.get_num_threads()} thread",
        "versions": {"python": platform.python_version()}
        | {p: version(p) for p in packages},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **more,
        "results": results,
    }


def sweep(measure: Callable[..., dict], **settings: Iterable) -> list[dict]:
    """Return a row for each combination of settings, the last changing fastest."""
    rows = []
    for values in product(*settings.values()):
        chosen = dict(zip(settings, values, strict=True))
        rows.append(chosen | measure(**chosen))
    return rows


def average_rows(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.mean(row[key] for row in rows) for key in rows[0]}


def write_record(made: dict) -> Path:
    """Write a record beside the old one and move it; lists of numbers on one line.

    Of several processes, the first one writes it.
    """
    path = RECORDS / f"{made['name']}.json"
    if find_rank()[0]:
        return path
    body = ",\n".join(f" {json.dumps(k)}: {format_rows(v)}" for k, v in made.items())
    beside = path.with_suffix(".part")
    beside.write_text(f"{{\n{body}\n}}\n", "utf8")
    beside.replace(path)
    return path


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
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {k: round_floats(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [round_floats(v) for v in value]
    return value


def round_to_half(model: nn.Module) -> None:
    model.load_state_dict({k: v.half().float() for k, v in model.state_dict().items()})


def save_weights(model: nn.Module, name: str) -> None:
    """Write a model's weights in half precision, beside and then moved."""
    if find_rank()[0]:
        return
    half = {k: v.half() for k, v in model.state_dict().items()}
    path = WEIGHTS / f"{name}.safetensors"
    save_file(half, path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)


def read_processor_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
