"""Padding handled by hand, and a greedy decoder over a bare step function.

Source: Sutskever, Vinyals and Le (2014), sections 3.2 and 3.3,
    https://arxiv.org/abs/1409.3215
Axes: B batch, S source symbols, T target symbols, M memory width, V symbols
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor


def reverse_source(
    tokens: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]
) -> Int[Tensor, "B S"]:
    """Return each sequence read backwards, its padding still at the end."""
    places = torch.arange(tokens.shape[1], device=tokens.device)
    mirrored = lengths[:, None] - 1 - places
    return tokens.gather(1, torch.where(mirrored < 0, places, mirrored))


def last_state(
    states: Float[Tensor, "B S M"], lengths: Int[Tensor, " B"]
) -> Float[Tensor, "B M"]:
    """Return the state after each sequence's last real symbol."""
    return states[torch.arange(len(lengths)), lengths - 1]


def masked_loss(
    logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"], pad: int
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy, in nats, of the symbols that are real."""
    surprise = -logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    return surprise[targets != pad].mean()


def greedy(
    step: Callable[[int, Tensor], tuple[Tensor, Tensor]],
    state: Tensor,
    start: int,
    end: int,
    limit: int,
) -> list[int]:
    """Return the likeliest symbol at every step, up to `end` or `limit`."""
    said, previous = [], start
    while len(said) < limit:
        logits, state = step(previous, state)
        previous = int(logits.argmax())
        if previous == end:
            break
        said.append(previous)
    return said
