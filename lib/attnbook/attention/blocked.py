"""Exact attention that skips the blocks of keys that its mask hides entirely.

The queries are processed in chunks, and each chunk attends only to the blocks
of keys that contain a key it can attend to. The result is that of `attend`;
only the amount of work and the largest tensor are smaller.

Source: a window over the last keys as in Jiang et al. (2023), section 2,
    https://arxiv.org/abs/2310.06825 (here the query's own key is one of its
    keys); the chunks and blocks are this book's addition.
Axes: B batch, H heads, T queries, S keys, D width of query and key, E of
    values, R queries in a chunk
"""

from collections.abc import Iterable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnbook.attention.scaled_dot_product import attend, require_values

CHUNK_SIZE = 128


def attend_in_blocks(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S E"],
    mask: Bool[Tensor, "..."],
    rows: int = CHUNK_SIZE,
) -> Float[Tensor, "B H T E"]:
    """Return `attend` under any mask, without the blocks that are masked out.

    A block is skipped if it is masked out for all queries of a chunk, in all
    heads, in the whole batch.

    Args:
        mask: True where a query can attend; broadcasts to (B, H, T, S).
        rows: queries in a chunk, and keys in a block.

    Raises:
        ValueError: if `rows` is below 1, or the mask does not fit.
    """
    check_sizes(rows, key, value)
    T, S = query.shape[-2], key.shape[-2]
    try:
        mask = mask.expand(*mask.shape[:-2], T, S)
    except RuntimeError:
        raise ValueError(
            f"a mask of shape {tuple(mask.shape)} does not broadcast to "
            f"{T} queries and {S} keys"
        ) from None
    chunks = []
    for chunk_mask in mask.split(rows, dim=-2):
        parts = chunk_mask.split(rows, dim=-1)
        used = [j for j, part in enumerate(parts) if part.any()]
        chunks.append((used, join([parts[j] for j in used], -1, chunk_mask)))
    return attend_chunks(query, key, value, chunks, rows)


def attend_window(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S E"],
    size: int,
    rows: int = CHUNK_SIZE,
) -> Float[Tensor, "B H T E"]:
    """Return attention of each query to the last `size` keys, its own included.

    The last query is aligned with the last key. No (T, S) mask is ever made:
    memory grows with T · (size + 2 · rows).

    Args:
        size: number of keys that a query can attend to.
        rows: queries in a chunk, and keys in a block.

    Raises:
        ValueError: if `rows` or `size` is below 1, or there is not one value
            for each key.
    """
    check_sizes(rows, key, value)
    if size < 1:
        raise ValueError(f"a window has at least 1 key, not {size}")
    T, S = query.shape[-2], key.shape[-2]
    chunks = []
    for start in range(S - T, max(S, S - T + 1), rows):
        # The queries of this chunk are aligned with keys start ... stop - 1.
        stop = min(start + rows, S)
        used = range(max(0, start - size + 1) // rows, -(-max(0, stop) // rows))
        aligned = torch.arange(start, stop, device=key.device)[:, None]
        low, high = used.start * rows, min(S, used.stop * rows)
        back = aligned - torch.arange(low, high, device=key.device)
        chunks.append((used, (back >= 0) & (back < size)))
    return attend_chunks(query, key, value, chunks, rows)


def attend_chunks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    chunks: Iterable[tuple[Iterable[int], Tensor]],
    rows: int,
) -> Tensor:
    """Compute chunk by chunk, each with its blocks of keys and a mask over them."""
    keys, values = key.split(rows, dim=-2), value.split(rows, dim=-2)
    outputs = []
    queries = query.split(rows, dim=-2)
    for chunk, (used, chunk_mask) in zip(queries, chunks, strict=True):
        chunk_keys = join([keys[j] for j in used], -2, key)
        chunk_values = join([values[j] for j in used], -2, value)
        outputs.append(attend(chunk, chunk_keys, chunk_values, chunk_mask))
    return join(outputs, -2, query)


def join(parts: list[Tensor], axis: int, whole: Tensor) -> Tensor:
    """Concatenate the parts; of no parts, return an empty slice of `whole`."""
    return torch.cat(parts, axis) if parts else whole.narrow(axis, 0, 0)


def check_sizes(rows: int, key: Tensor, value: Tensor) -> None:
    """Raise ValueError if `rows` is below 1 or a key has no value."""
    if rows < 1:
        raise ValueError(f"rows must be at least 1, not {rows}")
    require_values(key, value)
