"""Decoding: attention of one new query to the keys of a cache.

`attend_split_kv` reads a KV cache with one row of memory a sequence,
`attend_paged` one in pages. On an NVIDIA GPU Triton kernels compute both,
everywhere else `decode_in_parts` does, which is the kernels' reference.
Importing this module imports no Triton.

Source: split-KV: Dao, Haziza, Massa and Sizov (2023), Flash-Decoding,
    https://pytorch.org/blog/flash-decoding/; pages: Kwon et al. (2023), section
    4.1, https://arxiv.org/abs/2309.06180
Axes: B batch, H heads, G groups (key-value heads), R query heads a group, S
    keys, D width of query and key, E value width; `pages` pages of `page`
    positions
"""

from functools import reduce
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.attention.multi_head import fold_groups
from attnbook.attention.tiled import attend_tiled, merge, promote_to_float32
from attnbook.flash.operators import clear_padding
from attnbook.flash.options import (
    MaskedTileScores,
    Options,
    describe,
    has_integers,
    require_length_values,
    require_lengths,
    require_numbers,
    require_shapes,
    require_tensors,
)
from attnbook.flash.sizes import find_limit, warn_once

__all__ = ["attend_paged", "attend_split_kv"]


def attend_split_kv(
    query: Float[Tensor, "B H 1 D"],
    key: Float[Tensor, "B G S D"],
    value: Float[Tensor, "B G S E"],
    key_lengths: Int[Tensor, " B"] | None = None,
    *,
    scale: float | int | None = None,
    parts: int | None = None,
    strict: bool = False,
) -> Float[Tensor, "B H 1 E"]:
    """Return what `attend` returns for one query a head, from a KV cache.

    The keys are split into parts. The heads that share a head of keys attend
    to one part together; then the parts are merged. Keys and values after a
    sequence's length have no effect, whatever they are; a sequence of length 0
    gets zeros.

    Inputs that the Triton kernels do not take are computed in PyTorch, as by
    `flash_attention`, after one `FallbackWarning`. There are no gradients.

    Args:
        key: H / G consecutive heads of the query share one head of it.
        key_lengths: for each sequence, how many of its keys exist; all S
            unless given. Checked where the numbers are on the CPU; on a GPU, a
            number below 0 counts as 0 and one above S as S.
        scale: factor of the products; 1/√D unless given.
        parts: into how many parts the keys are split, at most 64; unless given,
            as many as occupy the GPU.
        strict: whether to raise an error where the Triton kernels cannot
            compute this.

    Raises:
        ValueError: if the inputs do not fit each other; with `strict`, also if
            the kernels do not take them.
    """
    refuse_decoding(query, key, value, key_lengths, scale, parts)
    factor = Options(scale=scale).factor(query.shape[-1])
    return decode(query, key, value, key_lengths, None, factor, parts, strict)


def attend_paged(
    query: Float[Tensor, "B H 1 D"],
    key_pages: Float[Tensor, "pages G page D"],
    value_pages: Float[Tensor, "pages G page E"],
    block_table: Int[Tensor, "B _"],
    key_lengths: Int[Tensor, " B"],
    *,
    scale: float | int | None = None,
    parts: int | None = None,
    strict: bool = False,
) -> Float[Tensor, "B H 1 E"]:
    """Return what `attend` returns for one query a head, from a paged cache.

    Position i of sequence b has its key and value in row i mod page of page
    `block_table[b, i // page]`. Sequences may share pages. Everything else is
    as in `attend_split_kv`.

    Args:
        key_pages: the pool of all pages.
        block_table: for each sequence, the numbers of its pages, in order.
            Entries after its last page are not used. Checked where the numbers
            are on the CPU; on a GPU, a number below 0 counts as 0 and one
            beyond the pool as its last page.
        key_lengths: for each sequence, how many keys it has; checked and
            bounded as in `attend_split_kv`, by the positions of its pages.

    Raises:
        ValueError: if the inputs do not fit each other, a page number is not
            one of the pool, or a length exceeds the pages; with `strict`, also
            if the kernels do not take the inputs.
    """
    given = query, key_pages, value_pages, key_lengths
    refuse_decoding(*given, scale, parts, block_table)
    factor = Options(scale=scale).factor(query.shape[-1])
    return decode(*given, block_table, factor, parts, strict)


@torch.library.custom_op("attnbook::decode", mutates_args=())
def decode(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_lengths: Tensor | None,
    block_table: Tensor | None,
    scale: float,
    parts: int | None,
    strict: bool = False,
) -> Tensor:
    """Return the output (B, H, 1, E), as an operator of PyTorch."""
    if block_table is not None and key_lengths is not None:
        require_pages(block_table, key_lengths, key)
    elif key_lengths is not None:
        require_length_values(key_lengths, key.shape[2])
    reason = find_limit(query, value, strict)
    given = query, key, value, key_lengths, block_table, scale, parts
    if reason is None:
        from attnbook.flash import decoding_kernels

        return decoding_kernels.decode(*given)
    name = "attend_split_kv" if block_table is None else "attend_paged"
    warn_once(*reason, name)
    return decode_in_parts(*given)


@decode.register_fake
def decode_shapes(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> Tensor:
    """Return an empty output of `decode`, for torch.compile."""
    return query.new_empty(*query.shape[:3], value.shape[-1])


def refuse_gradient(*_: Any) -> None:
    """Raise NotImplementedError in the backward pass."""
    raise NotImplementedError(
        "a gradient was requested, but decoding has none: use flash_attention"
    )


decode.register_autograd(refuse_gradient)


# Keys in a part, unless the number of parts is given.
PART_SIZE = 1024


def count_keys(key: Tensor, table: Tensor | None) -> int:
    """Return S, the largest number of keys that a sequence can have."""
    page = key.shape[2]
    return page if table is None else table.shape[1] * page


def choose_part_size(keys: int, parts: int, unit: int) -> int:
    """Return how many keys a part has: a multiple of a page or a tile."""
    each = -(-keys // parts)
    return -(-each // unit) * unit


def decode_in_parts(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Tensor | None,
    table: Tensor | None,
    scale: float,
    parts: int | None,
) -> Tensor:
    """Return attention (B, H, 1, E) of one query a head, part by part."""
    S, page = count_keys(key, table), key.shape[2]
    size = choose_part_size(
        S, parts or -(-S // PART_SIZE), 1 if table is None else page
    )
    results = []
    for first in range(0, S, size):
        stop = min(first + size, S)
        if table is None:
            keys, values = (x[:, :, first:stop] for x in (key, value))
        else:
            numbers = table[:, first // page : stop // page]
            keys, values = (gather_pages(x, numbers) for x in (key, value))
        some = None
        if lengths is not None:
            some = (lengths - first).clamp(0, stop - first)
        results.append(attend_part(query, keys, values, some, scale))
    output, _ = reduce(lambda a, b: merge(*a, *b), results)
    return output.reshape(*query.shape[:3], -1).to(query.dtype)


def gather_pages(pool: Tensor, numbers: Tensor) -> Tensor:
    """Return the rows (B, G, S, _) of the pages with these numbers."""
    # Bounded as in the kernel; on the CPU what is used has been checked.
    found = pool[numbers.clamp(0, len(pool) - 1)]  # (B, S / page, G, page, _)
    return found.transpose(1, 2).flatten(2, 3)


def attend_part(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Return one part's output (B, G, 1, R, E) and logsumexp (B, G, 1, R).

    The queries of a group's heads are the rows of one tile. `lengths` says how
    many of the part's keys each sequence has.
    """
    value = clear_padding(value, lengths)
    packed = promote_to_float32(fold_groups(query, key.shape[1]))[:, :, None]
    key, value = key[:, :, None], value[:, :, None]
    options = Options(key_lengths=lengths, scale=scale)
    scores = MaskedTileScores(packed, key, options)
    return attend_tiled(packed, key, value, scores=scores)


MOST_PARTS = 64


def refuse_decoding(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_lengths: Tensor | None,
    scale: float | int | None,
    parts: int | None,
    block_table: Tensor | None = None,
) -> None:
    """Raise ValueError for a cache, or pages, that decoding does not take."""
    require_tensors(query, key, value)
    if query.shape[2] != 1:
        raise ValueError(
            f"decoding takes 1 query a head, not {query.shape[2]}: for several "
            "queries use flash_attention"
        )
    if block_table is not None:
        if len(key) != len(value) or not len(key):
            raise ValueError(
                f"the pool has {len(key)} pages of keys but {len(value)} of "
                "values; as many of both are needed, and at least 1"
            )
        # All pages have one shape: that of each sequence's first page.
        key, value = (x[:1].expand(len(query), -1, -1, -1) for x in (key, value))
        require_table(block_table, query)
    require_shapes(query, key, value)
    require_numbers(Options(scale=scale))
    if parts is not None and (type(parts) is not int or not 1 <= parts <= MOST_PARTS):
        raise ValueError(
            f"parts must be a whole number from 1 to {MOST_PARTS}, not {parts!r}"
        )
    if key_lengths is not None:
        require_lengths(key_lengths, key)


def require_table(table: Tensor, query: Tensor) -> None:
    """Raise ValueError unless there is one row of integers a sequence."""
    if not has_integers(table):
        raise ValueError(
            f"block_table must be int32 or int64, but is {describe(table)}"
        )
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
