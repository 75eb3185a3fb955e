"""Mask rules: functions of indices that say which keys a query can attend to.

A rule takes the indices of a sequence in the batch, a head, a query and a key,
and returns True if that query can attend to that key. FlexAttention takes such
a function as its `mask_mod` and evaluates it block by block; `attnbook.masks`
materializes the whole mask. Each mask is therefore defined once.

Where the numbers of queries and keys differ, the last query is aligned with the
last key (bottom right), as in a decoder with a KV cache.

Source: FlexAttention's mask_mod,
    https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html;
    window and dilation: Beltagy et al. (2020), section 3.1,
    https://arxiv.org/abs/2004.05150 (there to both sides); blocks: Child et
    al. (2019), https://arxiv.org/abs/1904.10509; sinks: Xiao et al. (2023),
    section 3.2, https://arxiv.org/abs/2309.17453; two-sided windows and global
    tokens: Beltagy et al. (2020), section 3.1
Axes: B batch, H heads, T queries, S keys, N M blocks of queries and of keys
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

Device = torch.device | str | None

# (batch, head, query, key) -> whether that query can attend to that key.
Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def causal(T: int, S: int) -> Rule:
    """Return the rule: no key that comes after the query."""
    last = S - T
    return lambda b, h, q, k: k <= q + last


def padding(lengths: Int[Tensor, " B"]) -> Rule:
    """Return the rule: no key beyond the length of its sequence."""
    return lambda b, h, q, k: k < lengths[b]


def window(T: int, S: int, size: int) -> Rule:
    """Return the rule: the query's own key and the size - 1 before it."""
    return dilated(T, S, size, step=1)


def dilated(T: int, S: int, size: int, step: int) -> Rule:
    """Return the rule: size keys back from the query's own, every step-th."""
    last = S - T
    check_positive(size=size, step=step)

    def rule(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        back = q + last - k
        return (back >= 0) & (back < size * step) & (back % step == 0)

    return rule


def two_sided_window(T: int, S: int, reach: int, step: int = 1) -> Rule:
    """Return the rule: `reach` keys on each side, every step-th, and its own."""
    last = S - T
    check_positive(step=step)
    if reach < 0:
        raise ValueError(f"reach must be at least 0, but is {reach}")

    def rule(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        apart = (q + last - k).abs()
        return (apart <= reach * step) & (apart % step == 0)

    return rule


def global_tokens(T: int, S: int, positions: Sequence[int]) -> Rule:
    """Return the rule: global positions attend, and are attended to, anywhere."""
    last = S - T
    if wrong := [p for p in positions if not 0 <= p < S]:
        raise ValueError(
            f"global position {wrong[0]} is not one of the {S} keys, which are "
            "counted from 0"
        )

    def rule(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        found = torch.zeros_like(q == k)
        for position in positions:
            found = found | (q + last == position) | (k == position)
        return found

    return rule


def prefix(T: int, S: int, prefix: int) -> Rule:
    """Return the rule: causal, but the first `prefix` keys for all queries."""
    last = S - T
    return lambda b, h, q, k: (k <= q + last) | (k < prefix)


def document(ids: Int[Tensor, "B S"]) -> Rule:
    """Return the rule: only keys of the query's own document."""
    return lambda b, h, q, k: ids[b, q] == ids[b, k]


def block_sparse(layout: Bool[Tensor, "N M"], size: int) -> Rule:
    """Return the rule: query block n attends to key block m if layout[n, m]."""
    check_positive(size=size)
    if layout.dtype != torch.bool or layout.ndim != 2:
        raise ValueError(
            f"a layout is a boolean matrix (N, M), but got {layout.dtype} "
            f"of shape {tuple(layout.shape)}"
        )
    return lambda b, h, q, k: layout[q // size, k // size]


def sinks(T: int, S: int, count: int) -> Rule:
    """Return the rule: the first `count` keys, but none after the query."""
    last = S - T
    return lambda b, h, q, k: (k < count) & (k <= q + last)


def check_positive(**numbers: int) -> None:
    """Raise ValueError for numbers below 1."""
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"{name} must be at least 1, but is {number}")
