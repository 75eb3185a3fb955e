"""Exact attention that skips the blocks of keys which its mask hides.

Queries are taken some rows at a time, and each such strip meets only the blocks
of keys in which it may see anything. The numbers are `attend`'s; what shrinks
is the work, and the largest tensor.

Chapter: chapters/07_masks
Source: a window over the last keys as in Jiang et al. (2023), section 2,
    https://arxiv.org/abs/2310.06825 (here the query's own key is one of its
    keys); the strips and blocks are our own work.
Axes: B batch, H heads, T queries, S keys, D width of query and key, E of
    values, R rows of a strip
"""

from collections.abc import Iterable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnbook.scaled_dot_product import attend

ROWS = 128


def attend_in_blocks(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S E"],
    mask: Bool[Tensor, "..."],
    rows: int = ROWS,
) -> Float[Tensor, "B H T E"]:
    """Return `attend` under any mask, without the blocks nobody may see.

    A block is skipped if it is hidden from all queries of a strip, in all
    heads, in the whole batch.

    Args:
        query: what is asked.
        key: what it is compared with.
        value: what is averaged; one value a key.
        mask: True where a query may look; broadcasts to (B, H, T, S).
        rows: queries in a strip, and keys in a block.

    Raises:
        ValueError: if `rows` is below 1, or the mask does not fit.
    """
    refuse(rows, key, value)
    T, S = query.shape[-2], key.shape[-2]
    try:
        mask = mask.expand(*mask.shape[:-2], T, S)
    except RuntimeError:
        raise ValueError(
            f"a mask of shape {tuple(mask.shape)} does not broadcast to "
            f"{T} queries and {S} keys"
        ) from None
    strips = []
    for seen in mask.split(rows, dim=-2):
        parts = seen.split(rows, dim=-1)
        used = [j for j, part in enumerate(parts) if part.any()]
        strips.append((used, join([parts[j] for j in used], -1, seen)))
    return strip_by_strip(query, key, value, strips, rows)


def attend_window(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S E"],
    size: int,
    rows: int = ROWS,
) -> Float[Tensor, "B H T E"]:
    """Return attention of each query to the last `size` keys, its own included.

    The last query stands at the last key. No (T, S) mask is ever made: memory
    grows with T · (size + 2 · rows).

    Args:
        query: what is asked.
        key: what it is compared with.
        value: what is averaged; one value a key.
        size: keys a query may see.
        rows: queries in a strip, and keys in a block.

    Raises:
        ValueError: if `rows` or `size` is below 1, or there is not one value a
            key.
    """
    refuse(rows, key, value)
    if size < 1:
        raise ValueError(f"a window has at least 1 key, not {size}")
    T, S = query.shape[-2], key.shape[-2]
    strips = []
    for start in range(S - T, max(S, S - T + 1), rows):
        # These queries stand at keys start ... stop - 1.
        stop = min(start + rows, S)
        used = range(max(0, start - size + 1) // rows, -(-max(0, stop) // rows))
        own = torch.arange(start, stop, device=key.device)[:, None]
        low, high = used.start * rows, min(S, used.stop * rows)
        back = own - torch.arange(low, high, device=key.device)
        strips.append((used, (back >= 0) & (back < size)))
    return strip_by_strip(query, key, value, strips, rows)


def strip_by_strip(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    strips: Iterable[tuple[Iterable[int], Tensor]],
    rows: int,
) -> Tensor:
    """Attend strip by strip: each to the blocks it uses, under its mask."""
    keys, values = key.split(rows, dim=-2), value.split(rows, dim=-2)
    outputs = []
    queries = query.split(rows, dim=-2)
    for some, (used, seen) in zip(queries, strips, strict=True):
        met = join([keys[j] for j in used], -2, key)
        averaged = join([values[j] for j in used], -2, value)
        outputs.append(attend(some, met, averaged, seen))
    return join(outputs, -2, query)


def join(parts: list[Tensor], axis: int, whole: Tensor) -> Tensor:
    """Return the parts side by side; of no parts, none of the whole."""
    return torch.cat(parts, axis) if parts else whole.narrow(axis, 0, 0)


def refuse(rows: int, key: Tensor, value: Tensor) -> None:
    """Raise ValueError for strips without rows, or keys without values."""
    if rows < 1:
        raise ValueError(f"a strip has at least 1 row, not {rows}")
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(
            f"there are {key.shape[-2]} keys but {value.shape[-2]} values: "
            "each key needs its value"
        )
