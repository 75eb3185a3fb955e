"""What goes wrong between scores, mask and weights, as functions.

Axes: T queries, S keys
"""

import torch

from attnbook.attention.masked_softmax import masked_softmax as emptied

__all__ = ["added", "emptied", "filled", "lowest"]


def filled(number):
    """Return weights whose hidden keys have a score that the dtype decides."""
    return lambda scores, mask: scores.masked_fill(
        ~mask, number(scores.dtype)
    ).softmax(-1)


def added(scores, mask, number):
    """Return weights whose hidden keys have a number added to their scores."""
    bias = torch.zeros(mask.shape, dtype=scores.dtype)
    return (scores + bias.masked_fill(~mask, number)).softmax(-1)


def lowest(dtype):
    """Return the lowest number of a precision."""
    return torch.finfo(dtype).min
