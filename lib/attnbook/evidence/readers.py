"""Small language models of the help texts: their symbols, and training.

Chapter: chapters/09_transformer
Source: none
Axes: B batch, T positions, V symbols
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor, nn

from attnbook.evidence.longer_texts import alphabet, characters, loss_of
from attnbook.training import rate_at

STRANGE = "\N{REPLACEMENT CHARACTER}"  # what the training texts do not hold


@dataclass(frozen=True)
class Course:
    """How a small language model is trained.

    Attributes:
        steps: batches.
        rate: the highest learning rate; it falls along a cosine.
        warmup: share of the steps in which the rate rises.
        size: windows in a batch.
        window: characters read in each.
        clip: largest norm of the gradient; none unless given.
    """

    steps: int
    rate: float
    warmup: float = 0.0
    size: int = 32
    window: int = 64
    clip: float | None = None


def numbers(text: str) -> Int[Tensor, "1 T"]:
    """Return a text as the numbers that a model reads."""
    known = {c: i for i, c in enumerate(alphabet())}
    return torch.tensor([[known.get(c, len(known)) for c in text]])


def written(ids: Iterable[int] | Int[Tensor, " T"]) -> str:
    """Return the text of these numbers."""
    letters = (*alphabet(), STRANGE)
    return "".join(letters[int(i)] for i in ids)


def windows(
    split: str, starts: Int[Tensor, " B"], length: int
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Return stretches of a split's text, and what comes next at each place."""
    text, _ = characters(split)
    chosen = text[starts[:, None] + torch.arange(length + 1)]
    return chosen[:, :-1], chosen[:, 1:]


def fit(
    model: nn.Module,
    course: Course,
    seed: int,
    each: Callable[[int, float], None],
) -> None:
    """Train a model; `each` gets every step's number and loss before it."""
    text, _ = characters("train")
    rng = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=course.rate)
    for step in range(course.steps):
        share = rate_at(step / course.steps, course.warmup)
        optimiser.param_groups[0]["lr"] = course.rate * share
        last = len(text) - course.window
        starts = torch.randint(last, (course.size,), generator=rng)
        read, wanted = windows("train", starts, course.window)
        loss = loss_of(model(read), wanted)
        each(step, float(loss.detach()))
        optimiser.zero_grad()
        loss.backward()
        if course.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), course.clip)
        optimiser.step()


@torch.no_grad()
def held_out(
    model: nn.Module, split: str, length: int, count: int = 256
) -> float:
    """Return the loss, in nats a character, on evenly spread windows."""
    text, _ = characters(split)
    gap = (len(text) - length - 1) // count
    losses = []
    for starts in (gap * torch.arange(count)).split(64):
        read, wanted = windows(split, starts, length)
        losses.append(loss_of(model(read), wanted).double() * len(starts))
    return float(torch.stack(losses).sum() / count)


def loss_by_guess(split: str = "valid") -> dict[str, float]:
    """Return the loss of guessing evenly, and by how common each symbol is."""
    text, symbols = characters("train")
    counts = torch.bincount(text, minlength=symbols).double() + 1
    asked, _ = characters(split)
    chances = (counts / counts.sum())[asked]
    return {
        "even": float(torch.tensor(symbols, dtype=torch.double).log()),
        "frequency": float(-chances.log().mean()),
    }
