"""Attention masks: boolean tensors in which True means "can attend".

Each function materializes the rule of the same name in
`attnbook.masks.rules`. Masks are tensors: combine them with `&`, `|` and `~`,
and shapes with missing axes broadcast to (B, H, T, S).

Source: see `attnbook.masks.rules`
Axes: B batch, H heads, T queries, S keys, N M blocks of queries and of keys
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional as F

from attnbook.masks import rules
from attnbook.masks.conventions import convert_mask as convert_mask
from attnbook.masks.rules import Device, Rule


def materialize_mask(
    rule: Rule, T: int, S: int, batch: int = 1, heads: int = 1, device: Device = None
) -> Bool[Tensor, "..."]:
    """Return the mask that a rule defines, evaluated for every query and key.

    Axes that the rule does not use have size 1 or are omitted.
    """
    q, k = (torch.arange(n, device=device) for n in (T, S))
    return evaluate_rule(rule, q, k, batch, heads)


def evaluate_rule(
    rule: Rule,
    query: Int[Tensor, " T"],
    key: Int[Tensor, " S"],
    batch: int = 1,
    heads: int = 1,
) -> Bool[Tensor, "..."]:
    """Return the part of the mask at the indices of some queries and keys."""
    b, h = (torch.arange(n, device=key.device) for n in (batch, heads))
    return rule(b[:, None, None, None], h[:, None, None], query[:, None], key)


def draw_mask(mask: Bool[Tensor, "T S"]) -> str:
    """Return the mask as text, one line for each query: ● can attend, · cannot."""
    if mask.ndim != 2:
        raise ValueError(
            f"only a mask of shape (T, S) can be drawn, but its shape is "
            f"{tuple(mask.shape)}; choose one sequence and one head"
        )
    return "\n".join("".join("·●"[x] for x in row) for row in mask.tolist())


def causal(T: int, S: int, device: Device = None) -> Bool[Tensor, "T S"]:
    """Return True where the key does not come after the query.

    The last query is aligned with the last key; with more queries than keys the
    first queries can attend to no key.

    >>> print(draw_mask(causal(3, 5)))
    ●●●··
    ●●●●·
    ●●●●●
    """
    return materialize_mask(rules.causal(T, S), T, S, device=device)


def padding(lengths: Int[Tensor, " B"], S: int) -> Bool[Tensor, "B 1 1 S"]:
    """Return True where the key is not padding, the same for every query.

    >>> print(draw_mask(padding(torch.tensor([2, 4]), 5)[:, 0, 0]))
    ●●···
    ●●●●·
    """
    if lengths.numel() and not 0 <= lengths.min() <= lengths.max() <= S:
        raise ValueError(
            f"lengths must be from 0 to S = {S}, but are {lengths.tolist()}"
        )
    rule = rules.padding(lengths)
    return materialize_mask(rule, 1, S, batch=len(lengths), device=lengths.device)


def window(T: int, S: int, size: int, device: Device = None) -> Bool[Tensor, "T S"]:
    """Return True at the query's own key and the size - 1 keys before it.

    >>> print(draw_mask(window(4, 4, size=2)))
    ●···
    ●●··
    ·●●·
    ··●●
    """
    return materialize_mask(rules.window(T, S, size), T, S, device=device)


def dilated(
    T: int, S: int, size: int, step: int, device: Device = None
) -> Bool[Tensor, "T S"]:
    """Return True at `size` keys, every `step`-th, back from the query's own.

    >>> print(draw_mask(dilated(5, 5, size=2, step=2)))
    ●····
    ·●···
    ●·●··
    ·●·●·
    ··●·●
    """
    return materialize_mask(rules.dilated(T, S, size, step), T, S, device=device)


def two_sided_window(
    T: int, S: int, reach: int, step: int = 1, device: Device = None
) -> Bool[Tensor, "T S"]:
    """Return True at `reach` keys on each side, every `step`-th, and its own.

    >>> print(draw_mask(two_sided_window(5, 5, reach=1)))
    ●●···
    ●●●··
    ·●●●·
    ··●●●
    ···●●
    """
    return materialize_mask(
        rules.two_sided_window(T, S, reach, step), T, S, device=device
    )


def global_tokens(
    T: int, S: int, positions: Sequence[int], device: Device = None
) -> Bool[Tensor, "T S"]:
    """Return True where the query or the key is at a global position.

    With a window it is Longformer's mask:

    >>> near = two_sided_window(6, 6, reach=1)
    >>> print(draw_mask(near | global_tokens(6, 6, [0])))
    ●●●●●●
    ●●●···
    ●●●●··
    ●·●●●·
    ●··●●●
    ●···●●
    """
    rule = rules.global_tokens(T, S, positions)
    return materialize_mask(rule, T, S, device=device)


def prefix(T: int, S: int, prefix: int, device: Device = None) -> Bool[Tensor, "T S"]:
    """Return a causal mask whose first `prefix` keys are open to all queries.

    >>> print(draw_mask(prefix(4, 4, prefix=3)))
    ●●●·
    ●●●·
    ●●●·
    ●●●●
    """
    return materialize_mask(rules.prefix(T, S, prefix), T, S, device=device)


def document(ids: Int[Tensor, "B S"]) -> Bool[Tensor, "B 1 S S"]:
    """Return True where query and key belong to the same packed document.

    >>> print(draw_mask(document(torch.tensor([[0, 0, 1, 1, 1]]))[0, 0]))
    ●●···
    ●●···
    ··●●●
    ··●●●
    ··●●●
    """
    B, S = ids.shape
    return materialize_mask(rules.document(ids), S, S, batch=B, device=ids.device)


def reset_positions(ids: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Return positions that restart at 0 wherever the document changes.

    Otherwise a packed document would get other position vectors depending on
    where in the row it is packed.

    >>> reset_positions(torch.tensor([[0, 0, 0, 1, 1, 2]])).tolist()
    [[0, 1, 2, 0, 1, 0]]
    """
    index = torch.arange(ids.shape[1], device=ids.device)
    changes = ids[:, 1:] != ids[:, :-1]
    first = F.pad(changes, (1, 0), value=True)
    start = torch.where(first, index, 0).cummax(dim=1).values
    return index - start


def block_sparse(layout: Bool[Tensor, "N M"], size: int) -> Bool[Tensor, "T S"]:
    """Return True in the blocks of size x size that the layout allows.

    >>> layout = torch.tensor([[True, False]] * 2)
    >>> print(draw_mask(block_sparse(layout, size=2)))
    ●●··
    ●●··
    ●●··
    ●●··
    """
    rule = rules.block_sparse(layout, size)
    T, S = (n * size for n in layout.shape)
    return materialize_mask(rule, T, S, device=layout.device)


def sinks(T: int, S: int, count: int, device: Device = None) -> Bool[Tensor, "T S"]:
    """Return True at the first `count` keys, never after the query.

    >>> print(draw_mask(sinks(5, 5, count=1) | window(5, 5, size=2)))
    ●····
    ●●···
    ●●●··
    ●·●●·
    ●··●●
    """
    return materialize_mask(rules.sinks(T, S, count), T, S, device=device)
