"""Wrong backward passes that differ in more than a single line.

Axes: T queries, S keys
"""

from attnbook.exercises.flash_attention.answers import backward
from attnbook.exercises.solutions.scaled_dot_product import gradient


def from_scores(bend):
    """Return weights with something done to a tile's scores and logsumexps."""
    return lambda q, k, z, c: bend(q @ k.mT * c, z)


def at_once(query, key, value, output, lse, upstream, block):
    """Make all weights, as the standard version does."""
    return gradient(query, key, value, upstream)


def of_the_tile(w, dw, mean):
    """Take the average over the tile's keys alone."""
    return w * (dw - (w * dw).sum(-1, keepdim=True))


def shifted_only(query, key, value, output, lse, upstream, block):
    """Forget to divide: exp(score - maximum) is no weight yet."""
    top = (query @ key.mT * query.shape[-1] ** -0.5).amax(-1)
    return backward()(query, key, value, output, top, upstream, block)
