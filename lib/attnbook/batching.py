"""Batches: pairs of like length, padded, the target shifted by one.

Chapter: chapters/01_bottleneck
Source: Sutskever et al. (2014), section 3.4 (sentences of like length in one
    batch), https://arxiv.org/abs/1409.3215
Axes: B batch, S source symbols, T target symbols
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Int
from torch import Tensor

from attnbook.vocabulary import END, START, batch


class Batch(NamedTuple):
    """Sources, their lengths, what the decoder sees and what it should say."""

    source: Int[Tensor, "B S"]
    lengths: Int[Tensor, " B"]
    previous: Int[Tensor, "B T"]
    target: Int[Tensor, "B T"]


def make_batch(pairs: Sequence[tuple[list[int], list[int]]]) -> Batch:
    """Pad pairs of ids; a target ends with END, a decoder begins at START."""
    source, lengths = batch([s for s, _ in pairs])
    target, _ = batch([[*t, END] for _, t in pairs])
    previous, _ = batch([[START, *t] for _, t in pairs])
    return Batch(source, lengths, previous, target)


def batches(
    pairs: Sequence[tuple[list[int], list[int]]], size: int, seed: int
) -> list[list]:
    """Return the pairs in batches of like length, in an order that seed sets.

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
