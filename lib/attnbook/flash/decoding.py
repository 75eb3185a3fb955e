"""Decoding: attention of one new query to the keys of a cache.

`attend_split_kv` reads a KV cache with one row of memory a sequence,
`attend_paged` one in pages. On an NVIDIA GPU Triton kernels compute both,
everywhere else tiles in PyTorch. Importing it imports no Triton.

Source: split-KV: Dao, Haziza, Massa and Sizov (2023), Flash-Decoding,
    https://pytorch.org/blog/flash-decoding/; pages: Kwon et al. (2023), section
    4.1, https://arxiv.org/abs/2309.06180
Axes: B batch, H heads, G groups (key-value heads), S keys, D width of query and
    key, E value width; `pages` pages of `page` positions
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.flash.decoding_parts import decode_in_parts
from attnbook.flash.decoding_refusals import (
    refuse_decoding,
    refuse_pages,
    require_pages,
)
from attnbook.flash.fallback import find_limit, warn_once
from attnbook.flash.options import Options
from attnbook.flash.refusals import require_length_values

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
        query: the newest query of each sequence.
        key: the keys; H / G consecutive heads of the query share one head.
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
        query: the newest query of each sequence.
        key_pages: the pool of all pages of keys.
        value_pages: the pool of all pages of values.
        block_table: for each sequence, the numbers of its pages, in order.
            Entries after its last page are not used. Checked where the numbers
            are on the CPU; on a GPU, a number below 0 counts as 0 and one
            beyond the pool as its last page.
        key_lengths: for each sequence, how many keys it has; checked and
            bounded as in `attend_split_kv`, by the positions of its pages.
        scale: factor of the products; 1/√D unless given.
        parts: into how many parts the keys are split, at most 64; unless given,
            as many as occupy the GPU.
        strict: whether to raise an error where the Triton kernels cannot
            compute this.

    Raises:
        ValueError: if the inputs do not fit each other, a page number is not
            one of the pool, or a length exceeds the pages; with `strict`, also
            if the kernels do not take the inputs.
    """
    refuse_pages(query, key_pages, value_pages, block_table, key_lengths, scale, parts)
    factor = Options(scale=scale).factor(query.shape[-1])
    more = key_lengths, block_table, factor, parts, strict
    return decode(query, key_pages, value_pages, *more)


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
    """Return the output (B, H, 1, E), as an operator of PyTorch.

    Raises:
        ValueError: for lengths or page numbers on the CPU that do not fit;
            with `strict`, if the kernels do not take the inputs.
    """
    if block_table is not None and key_lengths is not None:
        require_pages(block_table, key_lengths, key)
    elif key_lengths is not None:
        require_length_values(key_lengths, key.shape[2])
    reason = find_limit(query, value, strict)
    given = query, key, value, key_lengths, block_table, scale, parts
    if reason is None:
        from attnbook.flash import decoding_launch

        return decoding_launch.decode(*given)
    name = "attend_split_kv" if block_table is None else "attend_paged"
    warn_once(*reason, name)
    return decode_in_parts(*given)


@decode.register_fake
def decode_shapes(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> Tensor:
    """Return an empty output of `decode`, for torch.compile."""
    return query.new_empty(*query.shape[:3], value.shape[-1])


def refuse_gradient(*_: Any) -> None:
    """Refuse to differentiate; registered as the backward pass."""
    raise NotImplementedError(
        "a gradient was requested, but decoding has none: use flash_attention"
    )


decode.register_autograd(refuse_gradient)
