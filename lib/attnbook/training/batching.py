"""Batches: pairs of similar length, padded, with the target shifted by one.

Source: Sutskever et al. (2014), section 3.4 (sentences of similar length in one
    batch), https://arxiv.org/abs/1409.3215
Axes: B batch, S source symbols, T target symbols
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from attnbook.data.vocabulary import END, START, pad_sequences


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
