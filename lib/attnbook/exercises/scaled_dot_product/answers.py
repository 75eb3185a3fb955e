"""What goes wrong in attention with a mask, as functions.

Axes: T queries, S keys, D width of query and key, E value width
"""

import torch

from attnbook.exercises.solutions.scaled_dot_product import attend


def scores(query, key):
    """Return the scaled products."""
    return query * query.shape[-1] ** -0.5 @ key.mT


def masked(weigh):
    """Return attention whose weights come of scores and mask, if there is one.

    Without a mask it is right.
    """

    def answer(query, key, value, mask):
        s = scores(query, key)
        return (s.softmax(-1) if mask is None else weigh(s, mask)) @ value

    return answer


def filled(number):
    """Return attention whose hidden keys have a finite score."""
    return masked(
        lambda s, mask: s.masked_fill(~mask, number(s.dtype)).softmax(-1)
    )


def infinite(s, mask):
    """Return a bias of 0 where the mask is True, minus infinity elsewhere."""
    return torch.zeros(mask.shape, dtype=s.dtype).masked_fill(~mask, -torch.inf)


def emptied(s, mask):
    """Return right weights; an empty row is 0."""
    empty = ~mask.any(-1, keepdim=True)
    hidden = s.masked_fill(~mask, -torch.inf).masked_fill(empty, 0.0)
    return hidden.softmax(-1).masked_fill(empty, 0.0)


def changed(factor=lambda q, k, v: 1.0, of=lambda k, v: v):
    """Return attention with other scores, or an average of something else."""

    def answer(query, key, value, mask):
        query = query * factor(query, key, value)
        return attend(query, key, of(key, value), mask)

    return answer
