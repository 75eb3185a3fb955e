"""What goes wrong in any attention that projects first, as functions.

Axes: B batch, T positions that ask, S positions asked, C and M their widths, D
    width of query and key, E value width
"""

from collections.abc import Callable

import torch
from torch import Tensor


def weighed(
    scale: Callable[[int, int], float] = lambda D, C: D**-0.5,
    axis: int = -1,
    then: Callable[[Tensor, int], Tensor] = lambda weights, D: weights,
    bend: Callable[[Tensor], Tensor] = lambda scores: scores,
) -> Callable:
    """Return cross-attention with another scale, axis or step in between.

    Args:
        scale: of the products, from the widths D of a key and C of the input.
        axis: of the softmax.
        then: what happens to the weights, with D.
        bend: what happens to the scores, a mask for instance.
    """

    def answer(x, memory, W_query, W_key, W_value):
        query, key = x @ W_query.T, memory @ W_key.T
        scores = query @ key.mT * scale(W_query.shape[0], x.shape[-1])
        weights = bend(scores).softmax(axis)
        return then(weights, W_query.shape[0]) @ (memory @ W_value.T)

    return answer


def past(scores: Tensor, diagonal: int = 0) -> Tensor:
    """Return scores with -inf at every key after the query."""
    seen = torch.ones_like(scores, dtype=torch.bool).tril(diagonal)
    return scores.masked_fill(~seen, -torch.inf)


def itself(cross: Callable) -> Callable:
    """Return the self-attention that a cross-attention makes."""
    return lambda x, *matrices: cross(x, x, *matrices)
