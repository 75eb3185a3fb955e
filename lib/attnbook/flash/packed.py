"""Attention of packed sequences: of different lengths, one after the other, no padding.

Offsets say where each sequence begins, as the `cu_seqlens` of FlashAttention and
of PyTorch's `varlen_attn` do. On an NVIDIA GPU each kernel is launched once for
all sequences and finds their tiles by the offsets there, so that no greatest
length has to be known. Elsewhere each sequence is computed by itself.

Source: Dao, flash_attn_varlen_func, https://github.com/Dao-AILab/flash-attention
Axes: N M packed queries and keys, B sequences, H heads, G groups (key-value heads),
    D width of query and key, E value width
"""

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from attnbook.flash import run
from attnbook.flash.operators import compute_lse
from attnbook.flash.options import Options, describe, require_offsets


def flash_attention_packed(
    query: Float[Tensor, "N H D"],
    key: Float[Tensor, "M G D"],
    value: Float[Tensor, "M G E"],
    query_offsets: Int[Tensor, "..."],
    key_offsets: Int[Tensor, "..."] | None = None,
    *,
    strict: bool = False,
    **options: Any,
) -> Float[Tensor, "N H E"]:
    """Return `flash_attention` of each sequence to its own keys.

    Sequence i has the queries query_offsets[i] ... query_offsets[i + 1] - 1. A
    query of a sequence without keys gets zeros.

    Args:
        query_offsets: B + 1 of int32 or int64 that ascend from 0 to N, on the
            device of the query. The numbers are checked where they are on the CPU.
            Reading them from a GPU would wait for it: there, rows after the last
            number get zeros, and numbers that do not ascend from 0 leave some
            rows undefined. Where the kernels do not run, they are read.
        key_offsets: likewise from 0 to M; those of the queries unless given.
        strict, options: those of `flash_attention`, without `key_lengths`.

    Raises:
        ValueError: if the offsets do not fit, or as `flash_attention` does.
    """
    given = query, key, value, query_offsets, key_offsets
    return run_packed(*given, strict, options)[0]


def flash_attention_packed_with_lse(
    query: Float[Tensor, "N H D"],
    key: Float[Tensor, "M G D"],
    value: Float[Tensor, "M G E"],
    query_offsets: Int[Tensor, "..."],
    key_offsets: Int[Tensor, "..."] | None = None,
    *,
    strict: bool = False,
    **options: Any,
) -> tuple[Float[Tensor, "N H E"], Float[Tensor, "N H"]]:
    """Return `flash_attention_packed` and each query's logsumexp.

    That is what `flash_attention_with_lse` returns; both have gradients. With an
    axis of one query a sequence, [:, :, None], they fit `apply_sinks`.
    """
    given = query, key, value, query_offsets, key_offsets
    output, sums = run_packed(*given, strict, options)
    return output, compute_lse(sums)[0].transpose(0, 1)


def run_packed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_offsets: Tensor,
    key_offsets: Tensor | None,
    strict: bool,
    options: dict[str, Any],
) -> tuple[Tensor, Tensor]:
    """Return the output (N, H, E), and the sums of `attnbook.flash.operators`."""
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
    packing = query_offsets, query_offsets if key_offsets is None else key_offsets
    require_offsets(packing, query)
    query, key, value = (x.transpose(0, 1)[None] for x in (query, key, value))
    output, sums = run(query, key, value, Options(**options), strict, packing)
    return output[0].transpose(0, 1), sums
