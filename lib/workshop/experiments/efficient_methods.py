"""What chapter 12's trained studies share: a rate for each method, three seeds.

With the first seed each method is trained at every rate, and the rate with the
smallest validation loss is its own; with the other seeds it is trained at that
rate only. Held-out measures are taken on other data than the validation loss.
Some methods are then trained for longer, to see whether steps were missing.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from attnbook.models.devices import use_seed
from attnbook.models.encoder_decoder import count_parameters
from attnbook.models.sequence_mixers import WINDOW, MixerModel
from attnbook.training.loop import compute_rate_factor, optimize
from attnbook.training.losses import compute_next_token_loss
from workshop.experiments.cores import hold_cores
from workshop.experiments.device import get_device
from workshop.experiments.extrapolation import resume_jobs
from workshop.experiments.record import CACHE, make_record, write_record

RATES, SEEDS = (3e-3, 1e-2, 3e-2), (0, 1, 2)
WARMUP, CLIP, TIMES = 0.1, 1.0, 2
Batch = tuple[Tensor, Tensor]  # ids, and what should be predicted


@dataclass(frozen=True)
class Study:
    """A task on which all methods are trained alike.

    Attributes:
        sizes: of the model, beside the method.
        steps: of training.
        draw: a batch to train on, from a generator.
        validate: the loss that chooses the rate.
        measure: what is recorded of a trained model.
        longer: methods that are also trained TIMES as long.
    """

    sizes: dict[str, int]
    steps: int
    draw: Callable[[torch.Generator], Batch]
    validate: Callable[[MixerModel], float]
    measure: Callable[[MixerModel], dict[str, Any]]
    longer: tuple[str, ...] = ()


def build_model(study: Study, method: str, seed: int) -> MixerModel:
    """Return a new model of a study."""
    with use_seed(seed):
        return MixerModel(method=method, **study.sizes).to(get_device())


def train_model(study: Study, method: str, rate: float, seed: int) -> MixerModel:
    """Return a trained model; the seed is that of the weights and batches."""
    model = build_model(study, method, seed)
    rng = torch.Generator().manual_seed(seed)

    def compute_loss(batch: Batch) -> Tensor:
        ids, wanted = (x.to(get_device()) for x in batch)
        return compute_next_token_loss(model(ids), wanted)

    optimize(
        torch.optim.Adam(model.parameters(), lr=rate),
        (study.draw(rng) for _ in range(study.steps)),
        compute_loss,
        lambda step: rate * compute_rate_factor((step + 1) / study.steps, WARMUP),
        CLIP,
    )
    return model.eval()


def train_and_measure(
    study: Study, method: str, rate: float, seed: int
) -> dict[str, Any]:
    """Return a row: the training, its validation loss, its measures."""
    wall, cpu = time.perf_counter(), time.process_time()
    model = train_model(study, method, rate, seed)
    with torch.no_grad():
        found = {"valid_loss": study.validate(model), **study.measure(model)}
    return {
        "method": method,
        "rate": rate,
        "seed": seed,
        "steps": study.steps,
        **found,
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
    }


def train_method(study: Study, method: str) -> list[dict[str, Any]]:
    """Return a row for each training of a method; `chosen` marks its rate."""
    first, *others = SEEDS
    rows = [train_and_measure(study, method, rate, first) for rate in RATES]
    best = min(rows, key=lambda row: row["valid_loss"])["rate"]
    rows += [train_and_measure(study, method, best, seed) for seed in others]
    if method in study.longer:
        long = replace(study, steps=TIMES * study.steps)
        rows.append(train_and_measure(long, method, best, first))
    return [{**row, "chosen": row["rate"] == best} for row in rows]


def count_equal_parameters(study: Study, methods: Iterable[str]) -> dict[str, int]:
    """Return the parameters of each method's model.

    Raises:
        ValueError: if one has more than 1 in 1000 more than another.
    """
    parameters = {
        method: count_parameters(build_model(study, method, 0)) for method in methods
    }
    if max(parameters.values()) > 1.001 * min(parameters.values()):
        raise ValueError(
            f"the methods should have equally many parameters, but have {parameters}"
        )
    return parameters


def record_study(
    name: str,
    study: Study,
    methods: Iterable[str],
    more: dict[str, Any],
    **settings: Any,
) -> dict[str, Any]:
    """Train all methods and write the record, a method after the other.

    An interrupted recording goes on with the first method not yet done.

    Args:
        name: of the record.
        study: the task.
        methods: what is trained on it.
        more: further results.
        settings: further fields of the record.
    """
    torch.set_num_threads(1)
    parameters = count_equal_parameters(study, methods)
    path = CACHE.expanduser() / f"{name}.json"
    settings |= {"steps": study.steps, "sizes": study.sizes}
    settings |= {"rates": list(RATES), "window": WINDOW}

    def run(method: str) -> list[dict[str, Any]]:
        with hold_cores(1):
            return train_method(study, method)

    kept = settings | {"on": str(get_device())}
    rows = resume_jobs(path, kept, [(method,) for method in parameters], run)
    results = {
        "parameters": parameters,
        "rows": [row for row in rows if row["steps"] == study.steps],
        "longer": [row for row in rows if row["steps"] > study.steps],
    }
    made = make_record(
        name,
        list(SEEDS),
        results | more,
        threads=1,
        **settings,
        wall_s=sum(row["wall_s"] for row in rows),
        cpu_s=sum(row["cpu_s"] for row in rows),
    )
    write_record(made)
    path.unlink()  # to repeat is to compute again
    return made
