"""Small language models, sound and leaking, for a leakage test to judge.

Each maps tokens (B, T) to logits (B, T, V). They differ in which
positions a query can attend to, in which mode, and in further operations.

Axes: B batch, T positions, V symbols, C width
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from attnbook.attention.masked_softmax import masked_softmax
from attnbook.exercises.inputs import draw_normal
from attnbook.exercises.masks.causal import causal

SYMBOLS, WIDTH = 6, 5  # symbol 0 is padding


class SmallModel(nn.Module):
    """One layer that attends, with a residual, dropout and a readout.

    Args:
        rng: draws the weights.
        mask: from tokens and mode (True in training) to a mask that broadcasts
            to (B, T, T).
        weigh: from scores and mask to weights.
        mix: from hidden numbers (B, T, C), tokens and mode to hidden numbers.
        dropout: of the hidden numbers, in training.
    """

    def __init__(
        self,
        rng: torch.Generator,
        mask: Callable | None = None,
        weigh: Callable = masked_softmax,
        mix: Callable | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.mask, self.weigh, self.mix = (
            mask or mask_future,
            weigh,
            mix or keep_hidden,
        )
        self.dropout = nn.Dropout(dropout)
        for name, rows in (
            ("table", SYMBOLS),
            ("query", WIDTH),
            ("key", WIDTH),
            ("readout", SYMBOLS),
        ):
            self.register_buffer(name, draw_normal(rng, rows, WIDTH))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits; those at position t predict the next symbol."""
        x = self.table[tokens]
        scores = (x @ self.query.T) @ (x @ self.key.T).mT / WIDTH**1.5
        weights = self.weigh(scores, self.mask(tokens, self.training))
        hidden = self.mix(x + weights @ x, tokens, self.training)
        return 8 + self.dropout(hidden) @ self.readout.T


def mask_future(tokens: Tensor, training: bool) -> Tensor:
    """Return the causal mask."""
    return causal(tokens.shape[1], tokens.shape[1])


def keep_hidden(hidden: Tensor, tokens: Tensor, training: bool) -> Tensor:
    """Change nothing."""
    return hidden


def mask_nothing(tokens: Tensor, training: bool) -> Tensor:
    """Return a mask without masked-out positions."""
    return torch.ones_like(mask_future(tokens, training))


def mask_nothing_in(mode: bool) -> Callable:
    """Return a causal mask in one mode, and one of True in the other.

    Args:
        mode: True for training, False for evaluation.
    """
    return partial(mask_by_mode, mode)


def mask_by_mode(mode: bool, tokens: Tensor, training: bool) -> Tensor:
    """Return a mask that masks out nothing in one mode."""
    return (mask_nothing if training == mode else mask_future)(tokens, training)


def mask_outside_window(tokens: Tensor, training: bool) -> Tensor:
    """Return a causal mask that goes no further back than two keys."""
    return mask_future(tokens, training).triu(-2)


def mask_after_next(tokens: Tensor, training: bool) -> Tensor:
    """Return a causal mask that is one key too wide."""
    return mask_nothing(tokens, training).tril(1)


def leak_at(t: int, s: int) -> Callable:
    """Return a causal mask but for one query, which attends to one key more."""
    return partial(mask_future_except, t, s)


def mask_future_except(t: int, s: int, tokens: Tensor, training: bool) -> Tensor:
    """Return a causal mask with one entry more."""
    mask = mask_future(tokens, training)
    mask[t, s] = True
    return mask


def leak_in_last(tokens: Tensor, training: bool) -> Tensor:
    """Return a mask that is causal but for the last sequence of a batch."""
    mask = mask_future(tokens, training).repeat(len(tokens), 1, 1)
    mask[-1] = True
    return mask


def leak_at_padding(tokens: Tensor, training: bool) -> Tensor:
    """Return a mask in which every query can attend to padding."""
    return mask_future(tokens, training) | (tokens == 0)[:, None]


def leak_at_repeats(tokens: Tensor, training: bool) -> Tensor:
    """Return a mask in which a query can attend to copies of its symbol."""
    same = tokens[:, :, None] == tokens[:, None, :]
    return mask_future(tokens, training) | same & (tokens != 0)[:, None]


def softmax_with_sentinel(scores: Tensor, mask: Tensor) -> Tensor:
    """Return weights in which masked-out keys have a score of -8."""
    return scores.masked_fill(~mask, -8.0).softmax(-1)


def round_hidden(hidden: Tensor, tokens: Tensor, training: bool) -> Tensor:
    """Add the sum over all positions, and take it away again."""
    total = hidden.sum(1, keepdim=True)
    return (hidden + total) - total


def subtract(hidden: Tensor, tokens: Tensor, training: bool) -> Tensor:
    """Take the mean over all positions away."""
    return hidden - hidden.mean(1, keepdim=True)


def subtract_in_training(hidden, tokens, training):
    """Take the mean over all positions away, but not in evaluation."""
    return subtract(hidden, tokens, training) if training else hidden


def add_length(hidden: Tensor, tokens: Tensor, training: bool) -> Tensor:
    """Add a number that grows with the length of the sequence."""
    return hidden + 0.1 * (tokens != 0).sum(1)[:, None, None]


def mix_sequences(hidden: Tensor, tokens: Tensor, training: bool) -> Tensor:
    """Mix in the next sequence of the batch."""
    others = hidden.roll(1, 0) - hidden
    return hidden + 0.3 * others.mean(1, keepdim=True)


def spread_nan(hidden: Tensor, tokens: Tensor, training: bool) -> Tensor:
    """Return NaN for a sequence that contains padding."""
    padded = (tokens == 0).any(1)[:, None, None]
    return hidden.masked_fill(padded, torch.nan)
