"""What goes wrong in attention with several heads, as functions.

Axes: B batch, H heads, G groups, T queries, S keys, C model width, D width of
    a head
"""

from collections.abc import Callable

import torch
from torch import Tensor

from attnbook.attention.multi_head import merge_heads, split_heads


def root(D: int, H: int) -> float:
    """Return the scale that is right."""
    return D**-0.5


def weighed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: Callable[[int, int], float] = root,
    axis: int = -1,
    then: Callable[[Tensor], Tensor] = lambda weights: weights,
    bend: Callable[[Tensor], Tensor] = lambda scores: scores,
) -> Tensor:
    """Return attention with another scale, axis or step in between.

    Args:
        query: of each head, (B, H, T, D).
        key: of each head.
        value: of each head.
        scale: of the products, from D and H.
        axis: of the softmax.
        then: what happens to the weights.
        bend: what happens to the scores, a mask for instance.
    """
    scores = query @ key.mT * scale(query.shape[-1], query.shape[1])
    return then(bend(scores).softmax(axis)) @ value


def with_heads(
    split: Callable = split_heads,
    merge: Callable = merge_heads,
    output: Callable = lambda merged, W: merged @ W.T,
    **more,
) -> Callable:
    """Return multi-head attention with a part of it exchanged.

    Args:
        split: cuts columns into heads.
        merge: puts them together.
        output: applies the last projection.
        **more: of `weighed`.
    """

    def answer(x, W_query, W_key, W_value, W_output, heads):
        parts = (split(x @ W.T, heads) for W in (W_query, W_key, W_value))
        return output(merge(weighed(*parts, **more)), W_output)

    return answer


def by_view(x: Tensor, heads: int) -> Tensor:
    """Return (B, H, T, D) as a mere change of shape, which scrambles."""
    return x.reshape(len(x), heads, x.shape[1], -1)


def merged_by_view(x: Tensor) -> Tensor:
    """Return (B, T, H·D) as a mere change of shape, which scrambles."""
    return x.reshape(len(x), x.shape[2], -1)


def interleaved(x: Tensor, heads: int) -> Tensor:
    """Return heads of which the h-th has every H-th column."""
    return x.unflatten(-1, (-1, heads)).permute(0, 3, 1, 2)


def merged_in_turns(x: Tensor) -> Tensor:
    """Return the heads' columns interleaved."""
    return x.permute(0, 2, 3, 1).flatten(2)


def with_groups(
    key_for: Callable | None = None, value_for: Callable | None = None, **more
) -> Callable:
    """Return grouped attention with a part of it exchanged.

    Args:
        key_for: makes a key for each head, from (B, G, S, D) and H.
        value_for: makes a value for each head.
        **more: of `weighed`.
    """

    def answer(query, key, value):
        heads = query.shape[1]
        keys = (key_for or for_each)(key, heads)
        return weighed(
            query, keys, (value_for or for_each)(value, heads), **more
        )

    return answer


def for_each(x: Tensor, heads: int) -> Tensor:
    """Return each group's rows once for each of its heads, in a row."""
    return x.repeat_interleave(heads // x.shape[1], dim=1)


def past(scores: Tensor) -> Tensor:
    """Return scores with -inf at every key after the query."""
    seen = torch.ones_like(scores, dtype=torch.bool).tril()
    return scores.masked_fill(~seen, -torch.inf)
