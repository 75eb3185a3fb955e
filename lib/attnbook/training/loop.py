"""Training a sequence-to-sequence model: seeded, resumable, stopped early.

Source: Adam of Kingma and Ba (2015), algorithm 1,
    https://arxiv.org/abs/1412.6980; gradient clipping of Pascanu et al. (2013),
    algorithm 1, https://arxiv.org/abs/1211.5063
Axes: B batch, S source symbols, T target symbols, V symbols
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.data.vocabulary import PAD
from attnbook.models.devices import find_device, use_seed
from attnbook.training.batching import Batch, draw_batches, make_batch
from attnbook.training.checkpoints import (
    resume_from_checkpoint,
    save_checkpoint,
)
from attnbook.training.progress import make_progress_bar

Example = TypeVar("Example")


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


def compute_symbol_loss(
    logits: Float[Tensor, "B T V"], target: Int[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy, in nats, of the symbols not padding."""
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)


@torch.no_grad()
def compute_held_out_loss(model: nn.Module, pairs: Sequence, size: int = 256) -> float:
    """Return the mean loss per symbol, in nats, in evaluation mode."""
    model.eval()
    total = count = 0.0
    for chosen in draw_batches(pairs, size, seed=0):
        made = make_batch(chosen).to(find_device(model))
        logits = model(made.source, made.lengths, made.previous).logits
        real = int((made.target != PAD).sum())
        total += float(compute_symbol_loss(logits, made.target)) * real
        count += real
    return total / count


def compute_rate_factor(progress: float, warmup: float) -> float:
    """Return the share of the highest rate at this share of all steps."""
    if progress < warmup:
        return progress / warmup
    return 0.5 * (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup)))


def optimize(
    optimizer: torch.optim.Optimizer,
    batches: Iterable[Example],
    compute_loss: Callable[[Example], Float[Tensor, ""]],
    rate: Callable[[int], float] | None = None,
    clip: float | None = None,
    callbacks: Sequence[Callable[[int, float], None]] = (),
) -> None:
    """Take one step of gradient descent a batch: the book's training loop.

    Args:
        optimizer: of the parameters to train.
        batches: drawn one by one, each just before its step.
        compute_loss: returns the loss of a batch.
        rate: returns the learning rate of a step; the optimizer's unless given.
        clip: largest norm of the gradient; none unless given.
        callbacks: called with each step's number and loss before the update,
            while the gradients are those of the step before.
    """
    for step, batch in enumerate(batches):
        if rate is not None:
            for group in optimizer.param_groups:
                group["lr"] = rate(step)
        loss = compute_loss(batch)
        for callback in callbacks:
            callback(step, float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            groups = (group["params"] for group in optimizer.param_groups)
            nn.utils.clip_grad_norm_([*chain(*groups)], clip)
        optimizer.step()


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

    def run(self, checkpoint: Path | None = None, progress: bool = True) -> list[dict]:
        """Train to the end, resuming from the checkpoint if there is one.

        The model is left with the weights of its best epoch.

        Returns:
            One dict an epoch: epoch, train_loss, valid_loss, wall_s, cpu_s,
            and what `watch` noted.
        """
        if checkpoint is not None and checkpoint.exists():
            resume_from_checkpoint(self, checkpoint)
        while len(self.history) < self.recipe.epochs and not self.is_stalled():
            self.run_epoch(progress)
            if checkpoint is not None:
                save_checkpoint(self, checkpoint)
        self.model.load_state_dict(self.best)
        self.model.eval()
        return self.history

    def is_stalled(self) -> bool:
        """Return whether the held-out loss has stopped falling."""
        losses = [note["valid_loss"] for note in self.history]
        return (
            bool(losses)
            and len(losses) - 1 - losses.index(min(losses)) >= self.recipe.patience
        )

    def run_epoch(self, progress: bool) -> None:
        """Train for one epoch, then evaluate on the held-out pairs."""
        number, recipe = len(self.history), self.recipe
        wall, cpu = time.perf_counter(), time.process_time()
        chosen = draw_batches(
            self.train, recipe.size, seed=10_000 * recipe.seed + number
        )
        losses: list[float] = []
        # Dropout draws from the global generator of the model's device.
        device = find_device(self.model)
        with use_seed(10_000 * recipe.seed + number, device):
            self.model.train()
            bar = make_progress_bar(chosen, progress, desc=f"epoch {number + 1}")

            def show_loss(step: int, loss: float) -> None:
                losses.append(loss)
                bar.set_postfix(loss=f"{loss:.3f}", refresh=False)

            optimize(
                self.optimizer,
                (make_batch(pairs).to(device) for pairs in bar),
                self.compute_loss,
                lambda step: self.compute_rate(
                    (number + step / len(chosen)) / recipe.epochs
                ),
                recipe.clip,
                [show_loss],
            )
        note = {
            "epoch": number + 1,
            "train_loss": sum(losses) / len(losses),
            "valid_loss": compute_held_out_loss(self.model, self.valid),
            "wall_s": time.perf_counter() - wall,
            "cpu_s": time.process_time() - cpu,
        }
        if self.watch is not None:
            note |= self.watch(self.model)
        if all(note["valid_loss"] < n["valid_loss"] for n in self.history):
            self.best = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.history.append(note)

    def compute_rate(self, share: float) -> float:
        """Return the learning rate at this share of all steps."""
        return self.recipe.rate * compute_rate_factor(share, self.recipe.warmup)

    def compute_loss(self, made: Batch) -> Float[Tensor, ""]:
        """Return the mean loss per symbol of a batch, in nats."""
        logits = self.model(made.source, made.lengths, made.previous).logits
        return compute_symbol_loss(logits, made.target)

    def step(self, made: Batch, share: float) -> None:
        """Take one step, on a batch, at this share of all steps."""
        optimize(
            self.optimizer,
            [made],
            self.compute_loss,
            lambda _: self.compute_rate(share),
            self.recipe.clip,
        )
