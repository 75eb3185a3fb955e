"""Small language models, sound and leaking, for a leakage test to judge.

Each maps tokens (B, T) to logits (B, T, V). All attend; what differs is who may
look where, and when, and what else happens on the way.

Axes: B batch, T positions, V symbols, C width
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from attnbook.attention.masked_softmax import masked_softmax
from attnbook.exercises.inputs import normal
from attnbook.exercises.masks.causal import causal

SYMBOLS, WIDTH = 6, 5  # symbol 0 is padding


class Reader(nn.Module):
    """One layer that attends, with a residual, dropout and a readout.

    Args:
        rng: draws the weights.
        see: from tokens and mode (True in training) to a mask that broadcasts
            to (B, T, T).
        weigh: from scores and mask to weights.
        mix: from hidden numbers (B, T, C), tokens and mode to hidden numbers.
        dropout: of the hidden numbers, in training.
    """

    def __init__(
        self,
        rng: torch.Generator,
        see: Callable | None = None,
        weigh: Callable = masked_softmax,
        mix: Callable | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.see, self.weigh, self.mix = see or past, weigh, mix or kept
        self.dropout = nn.Dropout(dropout)
        for name, rows in (
            ("table", SYMBOLS),
            ("query", WIDTH),
            ("key", WIDTH),
            ("readout", SYMBOLS),
        ):
            self.register_buffer(name, normal(rng, rows, WIDTH))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits; those at place t are about what follows it."""
        x = self.table[tokens]
        scores = (x @ self.query.T) @ (x @ self.key.T).mT / WIDTH**1.5
        weights = self.weigh(scores, self.see(tokens, self.training))
        hidden = self.mix(x + weights @ x, tokens, self.training)
        return 8 + self.dropout(hidden) @ self.readout.T


def past(tokens: Tensor, training: bool) -> Tensor:
    """Return the causal mask."""
    return causal(tokens.shape[1], tokens.shape[1])


def kept(hidden: Tensor, tokens: Tensor, training: bool) -> Tensor:
    """Change nothing."""
    return hidden


def everything(tokens: Tensor, training: bool) -> Tensor:
    """Return a mask that hides nothing."""
    return torch.ones_like(past(tokens, training))


def everything_in(mode: bool) -> Callable:
    """Return a mask that hides nothing in one mode, and is causal in the other.

    Args:
        mode: True for training, False for evaluation.
    """
    return partial(everything_or_past, mode)


def everything_or_past(mode: bool, tokens: Tensor, training: bool) -> Tensor:
    """Return a mask that hides nothing in one mode."""
    return (everything if training == mode else past)(tokens, training)


def window(tokens: Tensor, training: bool) -> Tensor:
    """Return a causal mask that goes no further back than two keys."""
    return past(tokens, training).triu(-2)


def shifted(tokens: Tensor, training: bool) -> Tensor:
    """Return a causal mask that is one key too wide."""
    return everything(tokens, training).tril(1)


def hole(t: int, s: int) -> Callable:
    """Return a causal mask but for one query, which sees one key more."""
    return partial(past_but, t, s)


def past_but(t: int, s: int, tokens: Tensor, training: bool) -> Tensor:
    """Return a causal mask with one entry more."""
    mask = past(tokens, training)
    mask[t, s] = True
    return mask


def last_sentence(tokens: Tensor, training: bool) -> Tensor:
    """Return a mask that is causal but for the last sentence of a batch."""
    mask = past(tokens, training).repeat(len(tokens), 1, 1)
    mask[-1] = True
    return mask


def padding_seen(tokens: Tensor, training: bool) -> Tensor:
    """Return a mask that lets padding be seen from everywhere."""
    return past(tokens, training) | (tokens == 0)[:, None]


def twins_seen(tokens: Tensor, training: bool) -> Tensor:
    """Return a mask that lets a symbol see itself again wherever it comes."""
    same = tokens[:, :, None] == tokens[:, None, :]
    return past(tokens, training) | same & (tokens != 0)[:, None]


def sentinel(scores: Tensor, mask: Tensor) -> Tensor:
    """Return weights whose hidden keys have a score that is not low enough."""
    return scores.masked_fill(~mask, -8.0).softmax(-1)


def rounded(hidden: Tensor, tokens: Tensor, training: bool) -> Tensor:
    """Add the sum over all positions, and take it away again."""
    total = hidden.sum(1, keepdim=True)
    return (hidden + total) - total


def centred(hidden: Tensor, tokens: Tensor, training: bool) -> Tensor:
    """Take the mean over all positions away."""
    return hidden - hidden.mean(1, keepdim=True)


def centred_in_training(hidden, tokens, training):
    """Take the mean over all positions away, but not in evaluation."""
    return centred(hidden, tokens, training) if training else hidden


def counted(hidden: Tensor, tokens: Tensor, training: bool) -> Tensor:
    """Add a number that grows with the length of the sequence."""
    return hidden + 0.1 * (tokens != 0).sum(1)[:, None, None]


def neighbour(hidden: Tensor, tokens: Tensor, training: bool) -> Tensor:
    """Mix in the next sequence of the batch."""
    others = hidden.roll(1, 0) - hidden
    return hidden + 0.3 * others.mean(1, keepdim=True)


def undone(hidden: Tensor, tokens: Tensor, training: bool) -> Tensor:
    """Return NaN for a sequence that contains padding."""
    padded = (tokens == 0).any(1)[:, None, None]
    return hidden.masked_fill(padded, torch.nan)
