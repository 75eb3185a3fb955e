"""Recording a run: train, round the weights, score, write it down.

Chapter: chapters/01_bottleneck
Source: none
Axes: none
"""

import json
import os
import platform
import time
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from attnbook.encoder_decoder import EncoderDecoder, parameters
from attnbook.evidence import RECORDS
from attnbook.evidence.run import Run
from attnbook.evidence.runs import RUNS
from attnbook.evidence.scoring import score, watch
from attnbook.evidence.tasks import Task
from attnbook.evidence.turns import turn
from attnbook.training import Trainer

CACHE = Path(os.environ.get("ATTNBOOK_CACHE", "~/.cache/attnbook"))


def note(name: str, seeds: list[int], results: dict, **more) -> dict:
    """Return a record: what ran, where and with what, and what came out."""
    packages = ("torch", "numpy", "sacrebleu", "sentencepiece")
    return {
        "name": name,
        "command": f"python -m attnbook.evidence {name}",
        "seeds": seeds,
        "device": f"{processor()}, {torch.get_num_threads()} thread",
        "versions": {"python": platform.python_version()}
        | {p: version(p) for p in packages},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **more,
        "results": results,
    }


def processor() -> str:
    """Return the name of this machine's processor, as far as it is told."""
    told = Path("/proc/cpuinfo")
    if told.exists():
        for line in told.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write(record: dict, folder: Path = RECORDS) -> Path:
    """Write a record; lists of numbers stay on one line each."""
    path = folder / f"{record['name']}.json"
    body = ",\n".join(f" {json.dumps(k)}: {rows(v)}" for k, v in record.items())
    path.write_text(f"{{\n{body}\n}}\n", "utf8")
    return path


def rows(value) -> str:
    """Return JSON: a list of dicts one a line, everything else on one line."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n  " + ",\n  ".join(map(plain, value)) + "\n ]"
    if isinstance(value, dict) and value:
        inner = (f"  {json.dumps(k)}: {plain(v)}" for k, v in value.items())
        return "{\n" + ",\n".join(inner) + "\n }"
    return plain(value)


def plain(value) -> str:
    """Return JSON on one line, numbers to 6 significant digits."""
    return json.dumps(rounded(value), ensure_ascii=False)


def rounded(value):
    """Return the value with every float to 6 significant digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(v) for v in value]
    return value


def halve(model: nn.Module) -> None:
    """Round the weights to half precision, as they are stored."""
    model.load_state_dict(
        {k: v.half().float() for k, v in model.state_dict().items()}
    )


def record(name: str, progress: bool = True) -> dict:
    """Train and score a run, going on where an earlier try stopped."""
    run = RUNS[name]
    torch.set_num_threads(1)
    data, model = run.data(), run.model()
    trainer = Trainer(
        model,
        data.encode(data.splits.train[:: run.every]),
        data.encode(data.splits.valid),
        run.recipe,
        watch(run.task, data),
    )
    with turn(1):
        history = trainer.run(
            CACHE.expanduser() / f"{name}.safetensors", progress
        )
        halve(model)
        begun = time.process_time()
        results = score(run.task, data, model, run.attention)
    made = note(
        name,
        [run.recipe.seed],
        results,
        task=run.task,
        model={k: v for k, v in asdict(run).items() if k != "recipe"},
        recipe=asdict(run.recipe),
        epochs=len(history),
        parameters=parameters(model),
        wall_s=sum(h["wall_s"] for h in history),
        cpu_s=sum(h["cpu_s"] for h in history),
        scoring_cpu_s=time.process_time() - begun,
        history=history,
    )
    write(made)
    if run.ship:
        half = {k: v.half() for k, v in model.state_dict().items()}
        save_file(half, RECORDS / f"{name}.safetensors")
    return made


def trained(name: str) -> tuple[EncoderDecoder, Task, Run]:
    """Return a run's model with the weights shipped, its data and settings.

    Raises:
        ValueError: if the run is unknown or its weights are not shipped.
    """
    path = RECORDS / f"{name}.safetensors"
    if name not in RUNS or not path.exists():
        shipped = sorted(p.stem for p in RECORDS.glob("*.safetensors"))
        raise ValueError(
            f"no weights of {name!r} are shipped; of {shipped} are"
        )
    run = RUNS[name]
    model = run.model()
    model.load_state_dict({k: v.float() for k, v in load_file(path).items()})
    return model.eval(), run.data(), run
