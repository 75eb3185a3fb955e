"""Attention of packed sequences: of different lengths, one after the other, no padding.

Offsets say where each sequence begins, as the `cu_seqlens` of FlashAttention and
of PyTorch's `varlen_attn` do. Here each sequence is one call of `flash_attention`
on views of the packed tensors; a single kernel for all of them would launch once.

Source: Dao, flash_attn_varlen_func, https://github.com/Dao-AILab/flash-attention
Axes: N M packed queries and keys, B sequences, H heads, G groups (key-value heads),
    D width of query and key, E value width
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.attention.scaled_dot_product import require_values
from attnbook.flash import flash_attention
from attnbook.flash.options import describe


def flash_attention_packed(
    query: Float[Tensor, "N H D"],
    key: Float[Tensor, "M G D"],
    value: Float[Tensor, "M G E"],
    query_offsets: Int[Tensor, "..."],
    key_offsets: Int[Tensor, "..."] | None = None,
    **options: Any,
) -> Float[Tensor, "N H E"]:
    """Return `flash_attention` of each sequence to its own keys.

    Sequence i has the queries query_offsets[i] ... query_offsets[i + 1] - 1. A
    query of a sequence without keys gets zeros.

    Args:
        query_offsets: B + 1 whole numbers from 0 to N. They are read: on a CPU
            that waits for nothing.
        key_offsets: likewise from 0 to M; those of the queries unless given.
        options: those of `flash_attention`, without `key_lengths`.

    Raises:
        ValueError: if the offsets do not fit, or as `flash_attention` does.
    """
    if options.get("key_lengths") is not None:
        raise ValueError(
            "packed sequences have no padding, but key_lengths are "
            f"{describe(options['key_lengths'])}"
        )
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim != 3:
            raise ValueError(
                f"packed {name} must have 3 axes (rows, heads, width), but has "
                f"{x.ndim}: {tuple(x.shape)}"
            )
    require_values(key.transpose(0, 1), value.transpose(0, 1))
    if key_offsets is None:
        key_offsets = query_offsets
    counts = read_counts("query_offsets", query_offsets, len(query))
    key_counts = read_counts("key_offsets", key_offsets, len(key))
    if len(counts) != len(key_counts):
        raise ValueError(
            f"there are queries of {len(counts)} sequences, but keys of "
            f"{len(key_counts)}"
        )
    # `split` goes back through one concatenation; the gradient of each slice
    # would be as large as the whole tensor.
    parts = zip(
        query.split(counts), key.split(key_counts), value.split(key_counts), strict=True
    )
    outputs = [query.new_zeros(0, query.shape[1], value.shape[2])]
    for q, k, v in parts:
        if len(q) and len(k):
            given = (x.transpose(0, 1)[None] for x in (q, k, v))
            outputs.append(flash_attention(*given, **options)[0].transpose(0, 1))
        else:
            outputs.append(q.new_zeros(*q.shape[:2], v.shape[2]))
    return torch.cat(outputs)


def read_counts(name: str, offsets: Tensor, rows: int) -> list[int]:
    """Return how many rows each sequence has, or raise ValueError."""
    if offsets.ndim != 1 or not len(offsets) or offsets.is_floating_point():
        raise ValueError(
            f"{name} must be whole numbers on one axis, but are {describe(offsets)}"
        )
    numbers = offsets.tolist()
    counts = offsets.diff().tolist()
    if numbers[0] != 0 or numbers[-1] != rows or min(counts, default=0) < 0:
        raise ValueError(
            f"{name} must ascend from 0 to {rows}, the number of rows, but are "
            f"{numbers}"
        )
    return counts
