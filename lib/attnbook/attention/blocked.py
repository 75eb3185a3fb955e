"""Exact attention that skips the blocks of keys that its mask hides entirely.

The queries are processed in chunks, and each chunk attends only to the blocks
of keys that contain a key it can attend to. The result is that of `attend`;
only the amount of work and the largest tensor are smaller.

A window on a CPU needs no loop: overlapping views of the keys, one for each
chunk of queries, make it one call of PyTorch's fused attention.

Source: a window over the last keys as in Jiang et al. (2023), section 2,
    https://arxiv.org/abs/2310.06825 (here the query's own key is one of its
    keys); the chunks and blocks are this book's addition.
Axes: B batch, H heads, T queries, S keys, D width of query and key, E of
    values, R queries in a chunk
"""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnbook.attention.scaled_dot_product import (
    attend,
    require_equal_widths,
    require_values,
)

CHUNK_SIZE = 128
# PyTorch's function on a CPU multiplies 32 queries at a time if they are few.
WINDOW_ROWS = 32
# The first queries, whose windows are not whole, take masks of this many rows,
# and so do all queries of windows from WIDE keys on.
HEAD_ROWS = 256
WIDE = 512


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
    rows: int = WINDOW_ROWS,
) -> Float[Tensor, "B H T E"]:
    """Return attention of each query to the last `size` keys, its own included.

    The last query is aligned with the last key. No (T, S) mask is ever made. On a
    CPU it has first derivatives only, where D = E.

    Args:
        size: number of keys that a query can attend to.
        rows: queries in a chunk.

    Raises:
        ValueError: if `rows` or `size` is below 1, or the shapes do not fit.
    """
    check_sizes(rows, key, value)
    require_equal_widths(query, key)
    if size < 1:
        raise ValueError(f"a window has at least 1 key, not {size}")
    # A check for NaN is a value that neither torch.compile nor vmap can wait for.
    traced = (
        torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    )
    if query.device.type == "cpu" and not traced:
        output = attend_window_views(query, key, value, size, rows)
        # PyTorch adds -inf to scores that are masked out, and NaN - inf is NaN.
        # The slow version replaces the scores, so that no such key is read.
        if output is not None and not output.detach().sum().isnan():
            return output
    T, S = query.shape[-2], key.shape[-2]
    chunks = []
    for start in range(S - T, max(S, S - T + 1), rows):
        # The queries of this chunk are aligned with keys start ... stop - 1.
        stop = min(start + rows, S)
        used = range(max(0, start - size + 1) // rows, -(-max(0, stop) // rows))
        low, high = used.start * rows, min(S, used.stop * rows)
        chunks.append((used, window_mask(key, size, start, stop, low, high)))
    return attend_chunks(query, key, value, chunks, rows)


def window_mask(
    like: Tensor, size: int, start: int, stop: int, low: int, high: int
) -> Tensor:
    """Return which keys low ... high - 1 the queries start ... stop - 1 see."""
    own = start - low  # the column of the first query's own key
    mask = like.new_ones(stop - start, high - low, dtype=torch.bool)
    return mask.tril_(own).triu_(own - size + 1)


def attend_window_views(
    query: Tensor, key: Tensor, value: Tensor, size: int, rows: int
) -> Tensor | None:
    """Return `attend_window` by PyTorch's fused attention, or None if that lacks it."""
    (B, H, T, D), S = query.shape, key.shape[2]
    if value.shape[-1] != D or not all(
        x.numel() and x.stride(-1) == 1 and x.shape[:2] == (B, H)
        for x in (query, key, value)
    ):
        return None
    empty = max(0, T - S)  # queries before the first key
    begin = S - T + empty  # the position of the first other query
    query, key, value = (x.flatten(0, 1) for x in (query[:, :, empty:], key, value))

    def attend_range(start: int, stop: int) -> Tensor:
        """Attend from the queries at positions start ... stop - 1."""
        low = max(0, start - size)
        mask = window_mask(key, size, start, stop, low, stop)
        part = query[:, start - begin : stop - begin], key[:, low:stop]
        given = (*part, value[:, low:stop])
        if wide:
            return attend_by_head(*given, mask)
        q, k, v = (x[None] for x in given)
        return scaled_dot_product_attention(q, k, v, attn_mask=mask)[0]

    # All queries from `first` on have a whole window. A chunk's keys are one more
    # than it needs: the products of an even number of keys are faster.
    wide = size >= WIDE and can_multiply_by_onednn(query, key, value)
    first = S if wide else min(S, max(begin, size))
    count = (S - first) // rows
    last = first + count * rows
    outputs = [query.new_zeros(B * H, empty, D)]
    for start in range(begin, first, HEAD_ROWS):
        outputs.append(attend_range(start, min(start + HEAD_ROWS, first)))
    if count:
        queries = query[:, first - begin : last - begin].unflatten(1, (count, rows))
        keys, values = (
            x[:, first - size : last].unfold(1, rows + size, rows).mT
            for x in (key, value)
        )
        mask = window_mask(key, size, size, size + rows, 0, size + rows)
        output = scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        outputs.append(output.flatten(1, 2))
    if last < S:
        outputs.append(attend_range(last, S))
    return torch.cat(outputs, dim=1).unflatten(0, (B, H))


def can_multiply_by_onednn(*tensors: Tensor) -> bool:
    """Tell whether `attend_by_head` takes the tensors: it has no gradient."""
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    single = all(x.dtype == torch.float32 for x in tensors)
    return single and not wanted and torch.backends.mkldnn.is_available()


def attend_by_head(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Return `attend` of tensors (H, T, D), one head after the other.

    The products are those of oneDNN, which are twice as fast on some processors
    as those of MKL that `@` takes. Only this operator has them for float32.
    """
    multiply = torch.ops.mkldnn._linear_pointwise  # x, y: x @ y.mT
    more: tuple[Any, ...] = None, "none", [], ""
    # Adding is faster than replacing; the caller looks for NaN. Only the first
    # and the last keys of a chunk are masked out for some of its queries.
    bias = query.new_zeros(mask.shape).masked_fill_(~mask, -torch.inf)
    edges = slice(0, len(mask)), slice(-len(mask), None)
    outputs = []
    for q, k, v in zip(query * query.shape[-1] ** -0.5, key, value, strict=True):
        scores = multiply(q, k, *more)
        for edge in edges:
            scores[:, edge] += bias[:, edge]
        weights = torch.softmax(scores, dim=-1, out=scores)
        outputs.append(multiply(weights, v.mT, *more))
    return torch.stack(outputs)


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
