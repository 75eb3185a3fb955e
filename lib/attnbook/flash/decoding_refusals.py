"""Validation of the arguments of `attend_split_kv` and `attend_paged`.

Axes: B batch, H heads, G groups (key-value heads), S keys, D width of query and
    key, E value width
"""

import torch
from torch import Tensor

from attnbook.flash.options import Options
from attnbook.flash.refusals import (
    require_lengths,
    require_numbers,
    require_shapes,
    require_tensors,
)

MOST_PARTS = 64


def refuse_decoding(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_lengths: Tensor | None,
    scale: float | int | None,
    parts: int | None,
) -> None:
    """Raise ValueError for a call that `attend_split_kv` does not take."""
    require_tensors(query, key, value)
    require_one_query(query)
    require_shapes(query, key, value)
    require_numbers(Options(scale=scale))
    require_parts(parts)
    if key_lengths is not None:
        require_lengths(key_lengths, key)


def refuse_pages(
    query: Tensor,
    key_pages: Tensor,
    value_pages: Tensor,
    block_table: Tensor,
    key_lengths: Tensor,
    scale: float | int | None,
    parts: int | None,
) -> None:
    """Raise ValueError for a call that `attend_paged` does not take."""
    require_tensors(query, key_pages, value_pages)
    require_one_query(query)
    if len(key_pages) != len(value_pages) or not len(key_pages):
        raise ValueError(
            f"the pool has {len(key_pages)} pages of keys but "
            f"{len(value_pages)} of values; as many of both are needed, and at "
            "least 1"
        )
    # All pages have one shape: that of each sequence's first page.
    first = (x[:1].expand(len(query), -1, -1, -1) for x in (key_pages, value_pages))
    require_shapes(query, *first)
    require_numbers(Options(scale=scale))
    require_parts(parts)
    require_table(block_table, query)
    require_lengths(key_lengths, query)


def require_one_query(query: Tensor) -> None:
    """Raise ValueError unless each head has one query."""
    if query.shape[2] != 1:
        raise ValueError(
            f"decoding takes 1 query a head, not {query.shape[2]}: for several "
            "queries use flash_attention"
        )


def require_parts(parts: int | None) -> None:
    """Raise ValueError for an invalid number of parts."""
    if parts is None:
        return
    if type(parts) is not int or not 1 <= parts <= MOST_PARTS:
        raise ValueError(
            f"parts must be a whole number from 1 to {MOST_PARTS}, not {parts!r}"
        )


def require_table(table: Tensor, query: Tensor) -> None:
    """Raise ValueError unless there is one row of integers a sequence."""
    if table.is_floating_point() or table.dtype == torch.bool:
        raise ValueError(f"block_table must have whole numbers, but has {table.dtype}")
    B = len(query)
    if table.ndim != 2 or len(table) != B or not table.shape[1]:
        raise ValueError(
            f"block_table must be ({B}, n), a row of n >= 1 page numbers for "
            f"each sequence, but is {tuple(table.shape)}"
        )
    if table.device != query.device:
        raise ValueError(
            f"query is on {query.device} but block_table on {table.device}"
        )


def require_pages(table: Tensor, lengths: Tensor, pool: Tensor) -> None:
    """Raise ValueError for lengths or page numbers that the pool cannot have.

    Only what is on the CPU is read; on a GPU the kernels bound the numbers.
    Entries after a sequence's last page are not used and may have any value.

    Args:
        table: the page numbers.
        lengths: how many keys each sequence has.
        pool: the pages of keys.
    """
    if table.device.type != "cpu":
        return
    pages, page = len(pool), pool.shape[2]
    for i, n in enumerate(lengths.tolist()):
        if not 0 <= n <= table.shape[1] * page:
            raise ValueError(
                f"sequence {i} has {n} keys, but its {table.shape[1]} pages of "
                f"{page} have from 0 to {table.shape[1] * page}"
            )
    used = torch.arange(table.shape[1]) * page < lengths[:, None]
    wrong = used & ((table < 0) | (table >= pages))
    if wrong.any():
        i, j = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"block_table[{i}, {j}] is {table[i, j]}, but the pool has pages 0 "
            f"to {pages - 1}"
        )
