"""Split-KV decoding in PyTorch: each part by tiles, then `merge`.

The reference of the decoding kernels, and what computes the inputs that they do
not take.

Source: Dao, Haziza, Massa and Sizov (2023), Flash-Decoding,
    https://pytorch.org/blog/flash-decoding/; keys and values in pages: Kwon et
    al. (2023), section 4.1, https://arxiv.org/abs/2309.06180
Axes: B batch, H heads, G groups (key-value heads), R query heads a group, S
    keys, D width of query and key, E value width
"""

from functools import reduce

import torch
from torch import Tensor

from attnbook.attention.multi_head import fold_groups
from attnbook.attention.tiled import attend_tiled, merge, promote_to_float32
from attnbook.flash.options import MaskedTileScores, Options

# Keys in a part, unless the number of parts is given.
PART_SIZE = 1024


def count_keys(key: Tensor, table: Tensor | None) -> int:
    """Return S, the largest number of keys that a sequence can have."""
    page = key.shape[2]
    return page if table is None else table.shape[1] * page


def choose_part_size(keys: int, parts: int, unit: int) -> int:
    """Return how many keys a part has: a multiple of a unit.

    Args:
        keys: S.
        parts: the number of parts; there may be fewer.
        unit: the number of keys in a page or a tile.
    """
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
    """Return the rows (B, G, S, _) of the pages with these numbers.

    Numbers outside the pool are bounded, as in the kernel: on the CPU they have
    been refused, except in entries that are not used.
    """
    found = pool[numbers.clamp(0, len(pool) - 1)]  # (B, S / page, G, page, _)
    return found.transpose(1, 2).flatten(2, 3)


def attend_part(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Return the output (B, G, 1, R, E) and the logsumexp (B, G, 1, R).

    The queries of a group's heads are the rows of one tile. Sums and outputs
    are in single precision, or in double if the inputs are.

    Args:
        query: one for each head.
        key: the keys of this part.
        value: the values of this part.
        lengths: how many of these keys each sequence has.
        scale: factor of the products.
    """
    if lengths is not None:
        # What lies after a sequence's last key may be NaN; 0 · NaN is NaN.
        columns = torch.arange(value.shape[2], device=value.device)
        beyond = columns[:, None] >= lengths.view(-1, 1, 1, 1)
        value = value.masked_fill(beyond, 0.0)
    packed = promote_to_float32(fold_groups(query, key.shape[1]))[:, :, None]
    key, value = key[:, :, None], value[:, :, None]
    options = Options(key_lengths=lengths, scale=scale)
    scores = MaskedTileScores(packed, key, options)
    return attend_tiled(packed, key, value, scores=scores)
