"""Two tasks for texts longer than trained on: saying again, and reading on.

Source: the question is that of Press et al. (2022),
    https://arxiv.org/abs/2108.12409; saying a text again is a task of
    Kazemnejad et al. (2023), https://arxiv.org/abs/2305.19466. The experiments
    are ours.
Axes: B batch, T positions
"""

from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor, nn

from attnbook.data.characters import encode_characters
from attnbook.models.attention_only import AttentionOnlyTransformer
from attnbook.models.devices import find_device, use_seed
from attnbook.training.loop import optimize
from attnbook.training.losses import IGNORED_TARGET, compute_next_token_loss
from workshop.experiments.device import get_device

LENGTH, LONGEST = 64, 512  # trained on, and read


SYMBOLS = 256  # of the copying task; one more marks the middle


SIZE, RATE = 32, 3e-3


def draw_copying(
    count: int, half: int, rng: torch.Generator
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Return texts of different symbols, a mark, and the same again.

    Returns:
        What is read, and what should come next: IGNORED in the first half.
    """
    order = torch.rand(count, SYMBOLS, generator=rng).argsort(dim=1)
    part = order[:, :half]
    mark = torch.full((count, 1), SYMBOLS)
    whole = torch.cat([part, mark, part], dim=1)
    wanted = whole[:, 1:].clone()
    wanted[:, :half] = IGNORED_TARGET
    return whole[:, :-1], wanted


def draw_reading(
    count: int, rng: torch.Generator
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """Return random windows of the training text and what comes next."""
    text, _ = encode_characters("train")
    starts = torch.randint(len(text) - LENGTH, (count, 1), generator=rng)
    windows = text[starts + torch.arange(LENGTH + 1)]
    return windows[:, :-1], windows[:, 1:]


def draw_batch(task: str, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return a batch to train on; none is longer than LENGTH."""
    if task == "text":
        return draw_reading(SIZE, rng)
    half = int(torch.randint(4, LENGTH // 2 + 1, (), generator=rng))
    return draw_copying(SIZE, half, rng)


def train(
    task: str,
    method: str,
    seed: int,
    steps: int,
    prepare: Callable[[AttentionOnlyTransformer], None] = lambda model: None,
) -> AttentionOnlyTransformer:
    """Return a trained model; the rate falls along a straight line to 0.

    Args:
        task: "copy" or "text".
        method: the positional encoding.
        seed: of the weights and of the batches.
        steps: of training.
        prepare: changes the model before it is trained.
    """
    symbols = SYMBOLS + 1 if task == "copy" else encode_characters("train")[1]
    with use_seed(seed):
        model = AttentionOnlyTransformer(symbols, method, LONGEST).to(get_device())
    prepare(model)
    rng = torch.Generator().manual_seed(seed)

    def compute_loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        text, wanted = (x.to(get_device()) for x in batch)
        return compute_next_token_loss(model(text), wanted)

    optimize(
        torch.optim.Adam(model.parameters(), lr=RATE),
        (draw_batch(task, rng) for _ in range(steps)),
        compute_loss,
        lambda step: RATE * (1 - step / steps),
    )
    return model


@torch.no_grad()
def measure_copying_error(model: nn.Module, length: int, count: int = 64) -> float:
    """Return the share of symbols copied wrong in texts of this length."""
    rng = torch.Generator().manual_seed(10**6)
    wrong = []
    for _ in range(count // 16):
        made = draw_copying(16, length // 2, rng)
        text, wanted = (x.to(find_device(model)) for x in made)
        predicted = model(text).argmax(-1)
        wrong.append((predicted != wanted)[wanted != IGNORED_TARGET].double().mean())
    return float(torch.stack(wrong).mean())


@torch.no_grad()
def measure_reading_loss(model: nn.Module, length: int, count: int = 128) -> float:
    """Return the loss, in nats, of the same characters after more or less text.

    Asked are `count` stretches of LENGTH characters of the test text; the
    model reads each after as much of the text before as makes it `length`.
    """
    text, _ = encode_characters("test")
    gap = (len(text) - LONGEST - 1) // count
    ends = LONGEST + gap * torch.arange(count)
    losses = []
    for some in ends.split(16):
        windows = text[some[:, None] + torch.arange(-length, 1)]
        windows = windows.to(find_device(model))
        logits = model(windows[:, :-1])[:, -LENGTH:]
        losses.append(compute_next_token_loss(logits, windows[:, -LENGTH:]).double())
    return float(torch.stack(losses).mean())
