"""Who may look where, as a rule: a function of indices, not a matrix.

A rule gets the numbers of a text in its batch, of a head, of a query and of a
key, and says True if that query may look at that key. FlexAttention takes such
a function as its `mask_mod` and asks it block by block; `attnbook.masks` makes
the whole matrix of it. So a mask is written down once.

Where queries and keys are not equally many, the last query stands at the last
key (bottom right), as in a decoder that keeps its past.

Chapter: chapters/07_masks
Source: FlexAttention's mask_mod,
    https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html;
    window and dilation: Beltagy et al. (2020), section 3.1,
    https://arxiv.org/abs/2004.05150 (there to both sides); blocks: Child et
    al. (2019), https://arxiv.org/abs/1904.10509; sinks: Xiao et al. (2023),
    section 3.2, https://arxiv.org/abs/2309.17453
Axes: B batch, H heads, T queries, S keys, N M blocks of queries and of keys
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

# (batch, head, query, key) -> whether that query may look at that key.
Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def causal(T: int, S: int) -> Rule:
    """Return the rule: no key that comes after the query."""
    last = shift(T, S)
    return lambda b, h, q, k: k <= q + last


def padding(lengths: Int[Tensor, " B"]) -> Rule:
    """Return the rule: no key beyond the length of its text."""
    return lambda b, h, q, k: k < lengths[b]


def window(T: int, S: int, size: int) -> Rule:
    """Return the rule: the query's own key and the size - 1 before it."""
    return dilated(T, S, size, step=1)


def dilated(T: int, S: int, size: int, step: int) -> Rule:
    """Return the rule: size keys back from the query's own, every step-th."""
    last = shift(T, S)
    positive(size=size, step=step)

    def rule(b, h, q, k):
        back = q + last - k
        return (back >= 0) & (back < size * step) & (back % step == 0)

    return rule


def prefix(T: int, S: int, prefix: int | Int[Tensor, " B"]) -> Rule:
    """Return the rule: causal, but the first `prefix` keys for everyone."""
    last = shift(T, S)
    if isinstance(prefix, int):
        return lambda b, h, q, k: (k <= q + last) | (k < prefix)
    return lambda b, h, q, k: (k <= q + last) | (k < prefix[b])


def document(ids: Int[Tensor, "B S"]) -> Rule:
    """Return the rule: only keys of the query's own text, of several."""
    return lambda b, h, q, k: ids[b, q] == ids[b, k]


def block_sparse(layout: Bool[Tensor, "N M"], size: int) -> Rule:
    """Return the rule: block n of queries sees block m of keys if layout[n, m].

    Raises:
        ValueError: if the layout is not a boolean table.
    """
    positive(size=size)
    if layout.dtype != torch.bool or layout.ndim != 2:
        raise ValueError(
            f"a layout is a boolean table (N, M), but this is {layout.dtype} "
            f"of shape {tuple(layout.shape)}"
        )
    return lambda b, h, q, k: layout[q // size, k // size]


def sinks(T: int, S: int, count: int) -> Rule:
    """Return the rule: the first `count` keys, but none ahead of the query."""
    last = shift(T, S)
    return lambda b, h, q, k: (k < count) & (k <= q + last)


def shift(T: int, S: int) -> int:
    """Return how far the first query stands behind the first key."""
    if T < 0 or S < 0:
        raise ValueError(f"lengths are not negative, but T is {T} and S is {S}")
    return S - T


def positive(**numbers: int) -> None:
    """Refuse numbers below 1."""
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"{name} must be at least 1, but is {number}")
