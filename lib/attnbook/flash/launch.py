"""From tensors to kernels: tile sizes, steps, and what a GPU does not take.

Chapter: chapters/11_flash_attention
Source: none
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E value width
"""

import math
from functools import lru_cache

import torch
import triton
from torch import Tensor

from attnbook.flash import backward as back
from attnbook.flash.biased import biased, capped, capped_and_biased
from attnbook.flash.forward import forward as forward_kernel
from attnbook.flash.options import Options
from attnbook.flash.sizes import Sizes, sizes
from attnbook.flash.tile import as_it_is

LOG2_E = math.log2(math.e)


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    options: Options,
    tile: Sizes | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the output and each query's logsumexp, to base 2."""
    query, key, value = map(in_rows, (query, key, value))
    (B, H, T, D), E = query.shape, value.shape[-1]
    tile = tile or sizes("forward", device(query), query.dtype, max(D, E))
    output = room(query, B, H, T, E)
    lse = room(query, B, H, T, dtype=torch.float32)
    with torch.cuda.device_of(query):
        forward_kernel[(triton.cdiv(T, tile.queries) * B * H,)](
            query, key, value, output, lse, *per_text(query, key, options),
            *map(steps, (query, key, value, output)),
            *numbers(query, key, options), cap(options),
            **constants(D, E, tile, options),
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
    tile: Sizes | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients on query, key and value."""
    query, key, value, upstream = map(in_rows, (query, key, value, upstream))
    (B, H, T, D), (_, G, S, E) = query.shape, value.shape
    tile = tile or sizes("backward", device(query), query.dtype, max(D, E))
    average = (output.float() * upstream.float()).sum(dim=-1)
    grads = [room(x, *x.shape) for x in (query, key, value)]
    more = per_text(query, key, options)
    given = query, key, value, upstream, lse, average
    read = [steps(x) for x in (query, key, value, upstream)]
    unit = options.factor(D)
    last = *numbers(query, key, options), unit, cap(options)
    fixed = constants(D, E, tile, options)
    with torch.cuda.device_of(query):
        back.key_value_gradient[(triton.cdiv(S, tile.keys) * B * G,)](
            *given, *grads[1:], *more, *read, *map(steps, grads[1:]), *last,
            **fixed,
        )  # fmt: skip
        back.query_gradient[(triton.cdiv(T, tile.queries) * B * H,)](
            *given, grads[0], *more, *read, steps(grads[0]), *last, **fixed
        )
    return tuple(grads)


def room(like: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    """Return a tensor to be written to; every number of it will be."""
    return like.new_empty(shape, dtype=dtype)


def in_rows(x: Tensor) -> Tensor:
    """Return the tensor with a row's numbers side by side, copied if need be.

    Other steps may be any, 0 of an expanded tensor too; but the kernels count
    the places within a tile of up to 128 rows in 32 bits.
    """
    fits = 128 * x.stride(-2) < 2**31 and x.stride(-1) == 1
    return x if fits else x.clone(memory_format=torch.contiguous_format)


def steps(x: Tensor) -> tuple[int, int, int]:
    """Return how far texts, heads and rows are apart in memory."""
    return x.stride()[:3]


def per_text(
    query: Tensor, key: Tensor, options: Options
) -> tuple[Tensor, Tensor]:
    """Return each text's number of keys, each head's slope in units of ln 2."""
    B, H = query.shape[:2]
    lengths, slopes = options.key_lengths, options.alibi_slopes
    all_keys, flat = usual(B, H, key.shape[2], query.device)
    if lengths is not None:
        all_keys = lengths.to(torch.int32).contiguous()
    if slopes is not None:
        flat = slopes.float().expand(B, H).contiguous() * LOG2_E
    return all_keys, flat


@lru_cache(maxsize=64)
def usual(B: int, H: int, S: int, device: torch.device) -> tuple:
    """Return all keys for each text, and slopes of 0, made once."""
    lengths = torch.full((B,), S, dtype=torch.int32, device=device)
    return lengths, torch.zeros(B, H, device=device)


def numbers(query: Tensor, key: Tensor, options: Options) -> tuple:
    """Return T, S, heads, heads a group, window, and scale · log₂ e."""
    (_, H, T, D), S = query.shape, key.shape[2]
    window = options.window or T + S
    return T, S, H, H // key.shape[1], window, options.factor(D) * LOG2_E


def cap(options: Options) -> float:
    """Return the soft-cap in units of ln 2; 0 stands for none."""
    return (options.softcap or 0.0) * LOG2_E


def change(options: Options):
    """Return the kernel's function of the scores."""
    if options.softcap is None:
        return as_it_is if options.alibi_slopes is None else biased
    return capped if options.alibi_slopes is None else capped_and_biased


def constants(D: int, E: int, tile: Sizes, options: Options) -> dict:
    """Return what a kernel is compiled for."""
    return {
        "D": D,
        "E": E,
        "BLOCK_T": tile.queries,
        "BLOCK_S": tile.keys,
        "BLOCK_D": max(16, triton.next_power_of_2(D)),
        "BLOCK_E": max(16, triton.next_power_of_2(E)),
        "CAUSAL": bool(options.causal or options.window),
        "CHANGE": change(options),
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }


def device(x: Tensor) -> tuple[int, int]:
    """Return the compute capability of the GPU that holds a tensor."""
    return torch.cuda.get_device_capability(x.device)
