"""Checkpoints: everything that resuming a training run needs.

Source: the file is safetensors, so that nothing is unpickled.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

if TYPE_CHECKING:
    from attnbook.training.loop import Trainer


def save_checkpoint(trainer: "Trainer", path: Path) -> None:
    """Write everything that resuming needs; nothing in it is pickled."""
    tensors = {f"now.{k}": v for k, v in trainer.model.state_dict().items()}
    tensors |= {f"best.{k}": v for k, v in trainer.best.items()}
    for i, state in trainer.optimizer.state_dict()["state"].items():
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


def resume_from_checkpoint(trainer: "Trainer", path: Path) -> None:
    """Resume from a checkpoint of the same recipe.

    Raises:
        ValueError: if the checkpoint was made with another recipe.
    """
    notes, tensors = read_metadata(path), load_file(path)
    theirs = json.loads(notes["recipe"])
    if theirs != asdict(trainer.recipe):
        raise ValueError(
            f"{path.name} was trained with {theirs}, not with {asdict(trainer.recipe)}"
        )
    trainer.history = json.loads(notes["history"])
    trainer.model.load_state_dict(select_prefix(tensors, "now."))
    trainer.best = select_prefix(tensors, "best.")
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in select_prefix(tensors, "adam.").items():
        i, key = name.split(".", 1)
        state.setdefault(int(i), {})[key] = tensor
    groups = trainer.optimizer.state_dict()["param_groups"]
    trainer.optimizer.load_state_dict({"state": state, "param_groups": groups})


def select_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with prefix, without it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def read_metadata(path: Path) -> dict[str, str]:
    """Return the text that a safetensors file carries beside its tensors."""
    with safe_open(path, framework="pt") as file:
        return file.metadata() or {}
