"""Checkpoints: everything that going on with a training run needs.

Chapter: chapters/01_bottleneck
Source: none; the file is safetensors, so that nothing is unpickled.
Axes: none
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

if TYPE_CHECKING:
    from attnbook.training import Trainer


def save(trainer: "Trainer", path: Path) -> None:
    """Write everything that going on needs; nothing in it is pickled."""
    tensors = {f"now.{k}": v for k, v in trainer.model.state_dict().items()}
    tensors |= {f"best.{k}": v for k, v in trainer.best.items()}
    for i, state in trainer.optimiser.state_dict()["state"].items():
        tensors |= {f"adam.{i}.{k}": v for k, v in state.items()}
    notes = {
        "history": json.dumps(trainer.history),
        "recipe": json.dumps(asdict(trainer.recipe)),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and moved: an interrupted save leaves the old one.
    beside = path.with_suffix(".part")
    save_file({k: v.contiguous() for k, v in tensors.items()}, beside, notes)
    beside.replace(path)


def resume(trainer: "Trainer", path: Path) -> None:
    """Go on from a checkpoint of the same recipe.

    Raises:
        ValueError: if the checkpoint was made with another recipe.
    """
    notes, tensors = read_notes(path), load_file(path)
    theirs = json.loads(notes["recipe"])
    if theirs != asdict(trainer.recipe):
        raise ValueError(
            f"{path.name} was trained with {theirs}, "
            f"not with {asdict(trainer.recipe)}"
        )
    trainer.history = json.loads(notes["history"])
    trainer.model.load_state_dict(under(tensors, "now."))
    trainer.best = under(tensors, "best.")
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in under(tensors, "adam.").items():
        i, key = name.split(".", 1)
        state.setdefault(int(i), {})[key] = tensor
    groups = trainer.optimiser.state_dict()["param_groups"]
    trainer.optimiser.load_state_dict({"state": state, "param_groups": groups})


def under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with prefix, without it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def read_notes(path: Path) -> dict[str, str]:
    """Return the text that a safetensors file carries beside its tensors."""
    with safe_open(path, framework="pt") as file:
        return file.metadata() or {}
