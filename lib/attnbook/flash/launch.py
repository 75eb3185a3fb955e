"""Launching the kernels: tile sizes, strides and other arguments.

Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E value width
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from attnbook.flash import backward as back
from attnbook.flash.forward import forward as forward_kernel
from attnbook.flash.operators import new_rows
from attnbook.flash.options import NO_PACKING, Options, Packing
from attnbook.flash.sizes import TileSizes, choose_tile_sizes
from attnbook.flash.tile import (
    apply_alibi,
    apply_softcap,
    apply_softcap_and_alibi,
    scale_later,
    scale_now,
)

LOG2_E = math.log2(math.e)


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    options: Options,
    tile: TileSizes | None = None,
    packing: Packing = NO_PACKING,
) -> tuple[Tensor, Tensor]:
    """Return the output and each query's logsumexp, to base 2.

    Packed sequences are one of all their rows; with them, the rows of a tensor
    lie in memory before its heads.
    """
    query, key, value = map(make_rows_contiguous, (query, key, value))
    (B, H, T, D), E = query.shape, value.shape[-1]
    tile = tile or choose_tile("forward", query, E, options)
    output = new_rows(query, packing[0], B, H, T, E, new=allocate)
    lse = allocate(query, B, H, T, dtype=torch.float32)
    more = expand_per_sequence(query, options, packing)
    with torch.cuda.device_of(query):
        forward_kernel[(count_tiles(T, tile.queries, more) * B * H,)](
            query, key, value, output, lse, *more,
            *(describe_tile(x, tile) for x in (key, value)),
            *map(read_strides, (query, key, value, output)),
            *list_size_arguments(query, key, options),
            (options.softcap or 0.0) * LOG2_E,
            **list_constants(D, E, tile, options),
        )  # fmt: skip
    return output, lse


def backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    lse: Tensor,
    upstream: Tensor,
    options: Options,
    tile: TileSizes | None = None,
    lse_upstream: Tensor | None = None,
    packing: Packing = NO_PACKING,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients on query, key and value.

    `lse_upstream` is the gradient on the natural logsumexp, 0 unless given.
    """
    query, key, value, upstream, output = map(
        make_rows_contiguous, (query, key, value, upstream, output)
    )
    (B, H, T, D), (_, G, S, E) = query.shape, value.shape
    by_queries, by_keys = (
        tile or choose_tile(kernel, query, E, options)
        for kernel in ("query_gradient", "key_value_gradient")
    )
    # The first kernel stores the averages that the second one reads.
    average = allocate(query, B, H, T, dtype=torch.float32)
    grads = [
        new_rows(x, packing[0], *x.shape, new=allocate) for x in (query, key, value)
    ]
    more = expand_per_sequence(query, options, packing)
    if lse_upstream is not None:
        lse_upstream = lse_upstream.float().contiguous()
    given = query, key, value, upstream, lse, average
    read = [read_strides(x) for x in (query, key, value, upstream)]
    last = (
        *list_size_arguments(query, key, options),
        options.factor(D),
        (options.softcap or 0.0) * LOG2_E,
    )
    with torch.cuda.device_of(query):
        back.query_gradient[(count_tiles(T, by_queries.queries, more) * B * H,)](
            *given, output, grads[0], lse_upstream, *more,
            *read, *map(read_strides, (output, grads[0])), *last,
            **list_constants(D, E, by_queries, options),
        )  # fmt: skip
        back.key_value_gradient[(count_tiles(S, by_keys.keys, more) * B * G,)](
            *given, *grads[1:], *more,
            *read, *map(read_strides, grads[1:]), *last,
            **list_constants(D, E, by_keys, options),
        )  # fmt: skip
    return grads[0], grads[1], grads[2]


def allocate(like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    """Return an uninitialized tensor; a kernel writes all of its entries."""
    return like.new_empty(shape, dtype=dtype)


def count_tiles(rows: int, block: int, more: tuple[Any, ...]) -> int:
    """Return how many tiles of rows there are, or may be in packed sequences."""
    sequences = more[-1]
    if sequences is None:
        return triton.cdiv(rows, block)
    return rows // block + sequences + 1


def describe_tile(x: Tensor, tile: TileSizes) -> TensorDescriptor | None:
    """Return a descriptor of keys or values, if one is chosen and takes them.

    Addresses and strides must be multiples of 16 bytes.
    """
    if not tile.descriptors:
        return None
    apart = [n * x.element_size() for n in read_strides(x)]
    if any(n <= 0 or n % 16 for n in apart) or x.data_ptr() % 16:
        return None
    lanes = max(16, triton.next_power_of_2(x.shape[-1]))
    return TensorDescriptor(x, [*x.shape], [*x.stride()], [1, 1, tile.keys, lanes])


def make_rows_contiguous(x: Tensor) -> Tensor:
    """Return the tensor, copied if the entries of a row are not contiguous.

    All other strides are allowed, also 0 in an expanded tensor, but the kernels
    compute offsets within a tile of up to 128 rows in 32 bits.
    """
    fits = 128 * x.stride(-2) < 2**31 and x.stride(-1) == 1
    return x if fits else x.clone(memory_format=torch.contiguous_format)


def read_strides(x: Tensor) -> tuple[int, int, int]:
    """Return the strides of sequences, heads and rows."""
    sequences, heads, rows, _ = x.stride()
    return sequences, heads, rows


def expand_per_sequence(
    query: Tensor, options: Options, packing: Packing
) -> tuple[Any, ...]:
    """Return key lengths, slopes · log₂ e, offsets, and the number of sequences.

    An option that is not given stays None, and the kernel is compiled without
    it. A constant tensor kept between calls would be wrong: made while a CUDA
    graph is captured, it has no values until a replay.
    """
    B, H = query.shape[:2]
    lengths, slopes = options.key_lengths, options.alibi_slopes
    if lengths is not None:
        lengths = lengths.to(torch.int32).contiguous()
    if slopes is not None:
        slopes = slopes.float().expand(B, H).contiguous() * LOG2_E
    queries, keys = packing
    if queries is None or keys is None:
        return lengths, slopes, None, None, None
    queries, keys = (x.to(torch.int32).contiguous() for x in (queries, keys))
    return lengths, slopes, queries, keys, len(queries) - 1


def list_size_arguments(
    query: Tensor, key: Tensor, options: Options
) -> tuple[int, int, int, int, int, float]:
    """Return T, S, heads, heads a group, window, and scale · log₂ e."""
    (_, H, T, D), S = query.shape, key.shape[2]
    # A window wider than all keys has the same effect, and may overflow.
    window = min(options.window or S, S)
    return T, S, H, H // key.shape[1], window, options.factor(D) * LOG2_E


def choose_score_function(options: Options, D: int) -> Callable[..., Any]:
    """Return the score function of the kernels.

    A scale that is not above 0, or that float32 rounds to 0, cannot be
    multiplied after the maximum.
    """
    if options.softcap is None:
        if options.alibi_slopes is not None:
            return apply_alibi
        return scale_later if options.factor(D) > 2.0**-100 else scale_now
    return apply_softcap if options.alibi_slopes is None else apply_softcap_and_alibi


def list_constants(D: int, E: int, tile: TileSizes, options: Options) -> dict[str, Any]:
    """Return the compile-time constants of a kernel."""
    return {
        "D": D,
        "E": E,
        "BLOCK_T": tile.queries,
        "BLOCK_S": tile.keys,
        "BLOCK_D": max(16, triton.next_power_of_2(D)),
        "BLOCK_E": max(16, triton.next_power_of_2(E)),
        "CAUSAL": bool(options.causal or options.window),
        "SCORE_FUNCTION": choose_score_function(options, D),
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }


def choose_tile(kernel: str, query: Tensor, E: int, options: Options) -> TileSizes:
    """Return the tile sizes of a kernel on the GPU that holds the query."""
    capability = torch.cuda.get_device_capability(query.device)
    width, dtype = max(query.shape[-1], E), query.dtype
    biased = options.softcap is not None or options.alibi_slopes is not None
    return choose_tile_sizes(kernel, capability, dtype, width, biased)
