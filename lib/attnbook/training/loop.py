"""Training a sequence-to-sequence model: seeded, resumable, stopped early.

Source: Adam of Kingma and Ba (2015), algorithm 1,
    https://arxiv.org/abs/1412.6980; gradient clipping of Pascanu et al. (2013),
    algorithm 1, https://arxiv.org/abs/1211.5063
Axes: B batch, S source symbols, T target symbols, V symbols
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.data.vocabulary import PAD
from attnbook.models.devices import device_of, seeded
from attnbook.training.batching import Batch, draw_batches, make_batch
from attnbook.training.checkpoints import (
    resume_from_checkpoint,
    save_checkpoint,
)
from attnbook.training.progress import progress_bar


@dataclass(frozen=True)
class Recipe:
    """How to train; the learning rate warms up, then falls along a cosine.

    Attributes:
        epochs: passes over the training pairs.
        size: pairs in a batch.
        rate: the highest learning rate.
        warmup: share of the steps in which the rate rises.
        clip: largest norm of the gradient.
        seed: of the order of batches and of dropout.
        patience: epochs without a better held-out loss before stopping.
    """

    epochs: int
    size: int = 128
    rate: float = 2e-3
    warmup: float = 0.05
    clip: float = 1.0
    seed: int = 0
    patience: int = 3


def symbol_loss(
    logits: Float[Tensor, "B T V"], target: Int[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy, in nats, of the symbols not padding."""
    return F.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=PAD
    )


@torch.no_grad()
def held_out_loss(model: nn.Module, pairs: Sequence, size: int = 256) -> float:
    """Return the mean loss per symbol, in nats, in evaluation mode."""
    model.eval()
    total = count = 0.0
    for chosen in draw_batches(pairs, size, seed=0):
        made = make_batch(chosen).to(device_of(model))
        logits = model(made.source, made.lengths, made.previous).logits
        real = int((made.target != PAD).sum())
        total += float(symbol_loss(logits, made.target)) * real
        count += real
    return total / count


def learning_rate_factor(progress: float, warmup: float) -> float:
    """Return the share of the highest rate at this share of all steps."""
    if progress < warmup:
        return progress / warmup
    return 0.5 * (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup)))


class Trainer:
    """One training run, an epoch at a time, on the device of the model.

    Args:
        model: called as model(source, lengths, previous).logits.
        train: pairs of (source ids, target ids).
        valid: held-out pairs; their loss decides when to stop and what to keep.
        recipe: how to train.
        watch: a function of the model; its results are added to each epoch's.
    """

    def __init__(
        self,
        model: nn.Module,
        train: Sequence,
        valid: Sequence,
        recipe: Recipe,
        watch: Callable[[nn.Module], dict] | None = None,
    ):
        if not train or not valid:
            raise ValueError(
                f"training needs pairs, but there are {len(train)} to train "
                f"on and {len(valid)} held out"
            )
        self.model, self.train, self.valid = model, train, valid
        self.recipe, self.watch = recipe, watch
        self.optimizer = torch.optim.Adam(model.parameters(), lr=recipe.rate)
        self.history: list[dict] = []
        self.best = {k: v.clone() for k, v in model.state_dict().items()}

    def run(
        self, checkpoint: Path | None = None, progress: bool = True
    ) -> list[dict]:
        """Train to the end, resuming from the checkpoint if there is one.

        The model is left with the weights of its best epoch.

        Returns:
            One dict an epoch: epoch, train_loss, valid_loss, wall_s, cpu_s,
            and what `watch` noted.
        """
        if checkpoint is not None and checkpoint.exists():
            resume_from_checkpoint(self, checkpoint)
        while len(self.history) < self.recipe.epochs and not self.stalled():
            self.epoch(progress)
            if checkpoint is not None:
                save_checkpoint(self, checkpoint)
        self.model.load_state_dict(self.best)
        self.model.eval()
        return self.history

    def stalled(self) -> bool:
        """Return whether the held-out loss has stopped falling."""
        losses = [note["valid_loss"] for note in self.history]
        return (
            bool(losses)
            and len(losses) - 1 - losses.index(min(losses))
            >= self.recipe.patience
        )

    def epoch(self, progress: bool) -> None:
        """Train for one epoch, then evaluate on the held-out pairs."""
        number, recipe = len(self.history), self.recipe
        wall, cpu = time.perf_counter(), time.process_time()
        chosen = draw_batches(
            self.train, recipe.size, seed=10_000 * recipe.seed + number
        )
        losses = []
        # Dropout draws from the global generator of the model's device.
        device = device_of(self.model)
        with seeded(10_000 * recipe.seed + number, device):
            self.model.train()
            bar = progress_bar(chosen, progress, desc=f"epoch {number + 1}")
            for i, pairs in enumerate(bar):
                share = (number + i / len(chosen)) / recipe.epochs
                made = make_batch(pairs).to(device)
                losses.append(self.step(made, share))
                bar.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
        note = {
            "epoch": number + 1,
            "train_loss": sum(losses) / len(losses),
            "valid_loss": held_out_loss(self.model, self.valid),
            "wall_s": time.perf_counter() - wall,
            "cpu_s": time.process_time() - cpu,
        }
        if self.watch is not None:
            note |= self.watch(self.model)
        if all(note["valid_loss"] < n["valid_loss"] for n in self.history):
            self.best = {
                k: v.clone() for k, v in self.model.state_dict().items()
            }
        self.history.append(note)

    def step(self, made: Batch, share: float) -> float:
        """Take one step of gradient descent and return the loss before it."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.rate * learning_rate_factor(
                share, self.recipe.warmup
            )
        logits = self.model(made.source, made.lengths, made.previous).logits
        loss = symbol_loss(logits, made.target)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        self.optimizer.step()
        return float(loss.detach())
