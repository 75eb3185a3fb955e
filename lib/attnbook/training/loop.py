"""The training loop: batches, losses, a seeded `Trainer`.

Source: Adam of Kingma and Ba (2015), algorithm 1,
    https://arxiv.org/abs/1412.6980; gradient clipping of Pascanu et al. (2013),
    algorithm 1, https://arxiv.org/abs/1211.5063; sentences of similar length
    in one batch: Sutskever et al. (2014), section 3.4,
    https://arxiv.org/abs/1409.3215
Axes: B batch, S source symbols, T target symbols, V symbols
"""

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm.auto import tqdm

from attnbook.data.vocabulary import END, PAD, START, pad_sequences
from attnbook.models.devices import find_device, use_seed

IGNORED_TARGET = -100
Example = TypeVar("Example")


class Batch(NamedTuple):
    """Sources, their lengths, the decoder's inputs and its targets."""

    source: Int[Tensor, "B S"]
    lengths: Int[Tensor, " B"]
    previous: Int[Tensor, "B T"]
    target: Int[Tensor, "B T"]

    def to(self, device: torch.device | str) -> "Batch":
        """Return the batch on a device."""
        return Batch(*(x.to(device) for x in self))


def make_batch(pairs: Sequence[tuple[list[int], list[int]]]) -> Batch:
    """Pad pairs of ids; targets end with END, inputs begin with START."""
    source, lengths = pad_sequences([s for s, _ in pairs])
    target, _ = pad_sequences([[*t, END] for _, t in pairs])
    previous, _ = pad_sequences([[START, *t] for _, t in pairs])
    return Batch(source, lengths, previous, target)


def find_rank() -> tuple[int, int]:
    """Return this process's number, from 0, and how many processes share the run."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def draw_batches(
    pairs: Sequence[tuple[list[int], list[int]]], size: int, seed: int
) -> list[list]:
    """Return the pairs in batches of similar length, in the order of a seed.

    Pairs are shuffled, sorted by length within pools of 50 batches, and the
    batches shuffled again: little padding, and no batch is the same twice.
    """
    rng, pool = random.Random(seed), 50 * size
    order = rng.sample(range(len(pairs)), len(pairs))
    made = []
    for start in range(0, len(order), pool):
        some = sorted(
            order[start : start + pool],
            key=lambda i: (len(pairs[i][0]), len(pairs[i][1])),
        )
        made += [some[i : i + size] for i in range(0, len(some), size)]
    rng.shuffle(made)
    return [[pairs[i] for i in chosen] for chosen in made]


def compute_symbol_loss(
    logits: Float[Tensor, "B T V"], target: Int[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy, in nats, of the symbols not padding."""
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)


def compute_next_token_loss(
    logits: Float[Tensor, "B T V"], wanted: Int[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy, in nats, where a target is not IGNORED_TARGET."""
    return F.cross_entropy(
        logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED_TARGET
    )


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


@dataclass(frozen=True)
class Recipe:
    """How to train; the learning rate warms up, then falls along a cosine."""

    epochs: int  # passes over the training pairs
    size: int = 128  # pairs in a batch
    rate: float = 2e-3  # the highest learning rate
    warmup: float = 0.05  # share of the steps in which the rate rises
    clip: float = 1.0  # largest norm of the gradient
    seed: int = 0  # of the order of batches and of dropout
    patience: int = 3  # epochs without a better held-out loss before stopping


class Trainer:
    """One training run, an epoch at a time, on the device of the model.

    Where a process group has been started, each of its processes computes the
    gradient on a share of every batch, and all take the same steps.

    Args:
        model: called as model(source, lengths, previous).logits.
        train: pairs of (source ids, target ids).
        valid: held-out pairs; their loss decides when to stop and what to keep.
        recipe: how to train.
    """

    def __init__(
        self,
        model: nn.Module,
        train: Sequence,
        valid: Sequence,
        recipe: Recipe,
    ):
        if not train or not valid:
            raise ValueError(
                f"training needs pairs, but there are {len(train)} to train "
                f"on and {len(valid)} held out"
            )
        self.model, self.train, self.valid = model, train, valid
        self.recipe = recipe
        self.rank, self.ranks = find_rank()
        self.divided = DistributedDataParallel(model) if self.ranks > 1 else model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=recipe.rate)
        self.history: list[dict] = []
        self.best = {k: v.clone() for k, v in model.state_dict().items()}

    def run(self, progress: bool = True) -> list[dict]:
        """Train to the end; the model is left with the weights of its best epoch.

        Returns one dict an epoch: epoch, train_loss, valid_loss, wall_s, cpu_s.
        """
        while len(self.history) < self.recipe.epochs and not self.is_stalled():
            self.run_epoch(progress)
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
        seed, device = 10_000 * recipe.seed + number, find_device(self.model)
        wall, cpu = time.perf_counter(), time.process_time()
        chosen = draw_batches(self.train, recipe.size, seed)
        total = 0.0
        # Dropout draws from the global generator of the model's device.
        with use_seed(seed + 1_000_000 * self.rank, device):
            self.model.train()
            bar = tqdm(chosen, disable=not progress, desc=f"epoch {number + 1}")

            def show_loss(step: int, loss: float) -> None:
                nonlocal total
                total += loss
                bar.set_postfix(loss=f"{loss:.3f}", refresh=False)

            optimize(
                self.optimizer,
                bar,
                self.compute_share_of_loss,
                lambda step: self.compute_rate(
                    (number + step / len(chosen)) / recipe.epochs
                ),
                recipe.clip,
                [show_loss],
            )
        note = {
            "epoch": number + 1,
            "train_loss": self.average(total / len(chosen)),
            "valid_loss": compute_held_out_loss(self.model, self.valid),
            "wall_s": time.perf_counter() - wall,
            "cpu_s": time.process_time() - cpu,
        }
        if all(note["valid_loss"] < n["valid_loss"] for n in self.history):
            self.best = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.history.append(note)

    def compute_rate(self, share: float) -> float:
        """Return the learning rate at this share of all steps."""
        return self.recipe.rate * compute_rate_factor(share, self.recipe.warmup)

    def compute_loss(self, made: Batch) -> Float[Tensor, ""]:
        """Return the mean loss per symbol of a batch, in nats."""
        logits = self.divided(made.source, made.lengths, made.previous).logits
        return compute_symbol_loss(logits, made.target)

    def compute_share_of_loss(self, pairs: Sequence) -> Float[Tensor, ""]:
        """Return what this process adds to the mean loss per symbol of a batch.

        The average over the processes, which gradients are too, is that loss:
        a share counts as much as it has symbols.
        """
        if len(pairs) < self.ranks:  # each process takes all of it
            return self.compute_loss(make_batch(pairs).to(find_device(self.model)))
        share = pairs[self.rank :: self.ranks]
        symbols, every = (sum(len(y) + 1 for _, y in some) for some in (share, pairs))
        loss = self.compute_loss(make_batch(share).to(find_device(self.model)))
        return loss * (self.ranks * symbols / every)

    def average(self, number: float) -> float:
        """Return the mean of a number over all processes."""
        if self.ranks == 1:
            return number
        found = torch.tensor(number, device=find_device(self.model))
        dist.all_reduce(found)
        return float(found) / self.ranks

    def step(self, made: Batch, share: float) -> None:
        """Take one step, on a batch, at this share of all steps."""
        rate = self.compute_rate(share)
        optimize(
            self.optimizer, [made], self.compute_loss, lambda _: rate, self.recipe.clip
        )
