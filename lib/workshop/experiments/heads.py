"""Recorded runs on heads: how many there are, and what makes them alike.

Source: the penalty on like heads as in Li et al. (2018), section 3.2,
    https://arxiv.org/abs/1810.10183
Axes: B batch, H heads, S items
"""

from collections.abc import Callable

import torch
from torch import Tensor

from attnbook.diagnose import entropy, head_similarity
from attnbook.models import associative_recall as task
from attnbook.models.devices import find_device, use_seed
from attnbook.models.encoder_decoder import count_parameters
from attnbook.training.associative_recall import (
    compute_error_rate,
    compute_error_rates,
    get_targets,
    train,
)
from workshop.experiments.device import get_device
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment

SEEDS, STEPS = (0, 1, 2), 600
COUNTS = (1, 2, 4, 8, 16, 32, 64)


def build_model(seed: int, heads: int, **settings) -> task.AssociativeRecallModel:
    """Return a model with the first weights that a seed gives."""
    with use_seed(seed):
        return task.AssociativeRecallModel(heads, **settings).to(get_device())


@torch.no_grad()
def measure_similarity(model: task.AssociativeRecallModel) -> dict:
    """Return mean cosine of two heads, mean entropy, on tables unseen."""
    tables = task.draw_tables(2000, torch.Generator().manual_seed(10**6))
    _, weights = model(tables.to(find_device(model)))
    like = head_similarity(weights[:, :, None])
    off = ~torch.eye(len(like), dtype=torch.bool, device=like.device)
    return {
        "similarity": float(like[off].mean()) if off.any() else None,
        "largest_similarity": float(like[off].max()) if off.any() else None,
        "entropy": float(entropy(weights).mean()),
    }


@experiment()
@recorded(seeds=SEEDS)
def heads_lookups() -> dict:
    """Record errors by number of heads, at equal parameters."""
    rows = []
    for heads in COUNTS:
        for seed in SEEDS:
            model = build_model(seed, heads)
            train(model, STEPS, seed)
            by_place = compute_error_rates(model)
            found = {
                "error": float(by_place.mean()),
                "by_place": by_place.tolist(),
                **measure_similarity(model),
            }
            rows.append({"heads": heads, "seed": seed, **found})
    return {
        "rows": rows,
        "parameters": count_parameters(model),
        "steps": STEPS,
        "width": 64,
    }


def diversity_loss(weights: Tensor) -> Tensor:
    """Return the mean cosine of two different heads: the diversity loss."""
    like = head_similarity(weights[:, :, None])
    heads = len(like)
    return (like.sum() - like.trace()) / (heads * (heads - 1))


def weak_diversity_loss(weights: Tensor) -> Tensor:
    """Return a hundredth of the diversity loss."""
    return diversity_loss(weights) / 100


def compute_address_targets(tables: task.LookupTables) -> Tensor:
    """Return answers that need no table: the addresses asked, halved."""
    return tables.queries // 2


def share_embeddings(model: task.AssociativeRecallModel) -> None:
    """Give eight addresses one embedding each: they cannot be told apart."""
    with torch.no_grad():
        rows = torch.arange(task.ADDRESSES, device=find_device(model)) // 8
        model.address.weight.copy_(model.address.weight[rows])
    model.address.weight.requires_grad_(False)


def copy_first_head(model: task.AssociativeRecallModel) -> None:
    """Begin with eight copies of one head."""
    with torch.no_grad():
        for part in ("query", "key"):
            layer = getattr(model.attention, part)
            first = layer.weight[: layer.weight.shape[0] // 8]
            layer.weight.copy_(first.repeat(8, 1))
            layer.bias.copy_(layer.bias[: len(first)].repeat(8))


# What is tried, with 8 heads unless said: settings of the model, of training,
# and what is done to the model first.
TRIED: dict[str, tuple[dict, dict, Callable | None]] = {
    "as it is": ({}, {}, None),
    "half of the weights dropped": ({"dropout": 0.5}, {}, None),
    "nine tenths dropped": ({"dropout": 0.9}, {}, None),
    "heads 2 wide": ({"heads": 32}, {}, None),
    "learning rate x 10": ({}, {"rate": 1e-1}, None),
    "learning rate x 100": ({}, {"rate": 1.0}, None),
    "addresses that look alike": ({}, {}, share_embeddings),
    "a task that needs no table": (
        {},
        {"target": compute_address_targets},
        None,
    ),
    "eight copies of one head": ({}, {}, copy_first_head),
    "diversity loss": ({}, {"extra": diversity_loss}, None),
    "diversity loss / 100": ({}, {"extra": weak_diversity_loss}, None),
    "nine tenths dropped, diversity loss / 100": (
        {"dropout": 0.9},
        {"extra": weak_diversity_loss},
        None,
    ),
    "eight copies, diversity loss / 100": (
        {},
        {"extra": weak_diversity_loss},
        copy_first_head,
    ),
    "learning rate x 10, diversity loss": (
        {},
        {"rate": 1e-1, "extra": diversity_loss},
        None,
    ),
    "eight copies, diversity loss": (
        {},
        {"extra": diversity_loss},
        copy_first_head,
    ),
}


@experiment()
@recorded(seeds=SEEDS)
def heads_collapse() -> dict:
    """Record what makes heads alike, what parts them, and what it costs."""
    rows = []
    for what, (settings, training, first) in TRIED.items():
        for seed in SEEDS:
            model = build_model(seed, **({"heads": 8} | settings))
            if first is not None:
                first(model)
            train(model, STEPS, seed, **training)
            target = training.get("target", get_targets)
            found = {
                "error": compute_error_rate(model, target=target),
                **measure_similarity(model),
            }
            rows.append({"what": what, "seed": seed, **found})
    return {"rows": rows, "steps": STEPS}
