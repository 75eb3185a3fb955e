"""The forward and the backward pass as custom operators of PyTorch.

As operators (`torch.library.custom_op`) they work under `torch.compile`, which
needs the shapes of their outputs without running them. Each of them runs the
Triton kernels where these take the inputs, and the tiled PyTorch version elsewhere.

Packed sequences (`attnbook.flash.packed`) are one sequence with offsets. The
kernels read the offsets on the GPU; elsewhere each sequence is attended to by
itself. Outputs then have the strides of (B, T, H, _), as the inputs do.

Source: https://docs.pytorch.org/tutorials/advanced/python_custom_ops.html
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E value width; `sums` are (B, H, T, 1) from the kernels,
    the logsumexp to base 2, and (B, H, T, 2) from the tiles, the maximum and
    the total of exp(score - maximum)
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from attnbook.attention.tiled import (
    accumulate_tiles,
    attend_tiled_gradient,
    promote_to_float32,
)
from attnbook.flash.options import (
    MaskedTileScores,
    Options,
    Packing,
    read_counts,
    require_length_values,
)
from attnbook.flash.sizes import find_limit, warn_once


@torch.library.custom_op("attnbook::flash_forward", mutates_args=())
def flash_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_lengths: Tensor | None,
    alibi_slopes: Tensor | None,
    query_offsets: Tensor | None,
    key_offsets: Tensor | None,
    causal: bool,
    window: int | None,
    softcap: float | None,
    scale: float,
    strict: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the output (B, H, T, E), and sums that the backward pass needs."""
    options = Options(causal, window, key_lengths, alibi_slopes, softcap, scale)
    if key_lengths is not None:
        require_length_values(key_lengths, key.shape[2])
    packing = query_offsets, key_offsets
    reason = find_limit(query, value, strict)
    if reason is None:
        from attnbook.flash import launch

        output, lse = launch.forward(query, key, value, options, packing=packing)
        return output, lse[..., None]
    warn_once(*reason)
    made = [
        tiled_forward(q, k, v, options)
        for q, k, v in split_packed(packing, [query], [key, value])
        if q.shape[2]
    ]
    outputs, sums = zip(*made, strict=True)
    return join_packed(packing, outputs), torch.cat(sums, 2)


@torch.library.custom_op("attnbook::flash_backward", mutates_args=())
def flash_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_lengths: Tensor | None,
    alibi_slopes: Tensor | None,
    query_offsets: Tensor | None,
    key_offsets: Tensor | None,
    output: Tensor,
    sums: Tensor,
    upstream: Tensor,
    causal: bool,
    window: int | None,
    softcap: float | None,
    scale: float,
    lse_upstream: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients on query, key and value, from a forward pass."""
    options = Options(causal, window, key_lengths, alibi_slopes, softcap, scale)
    packing = query_offsets, key_offsets
    if sums.shape[-1] == 1:
        from attnbook.flash import launch

        return launch.backward(
            query, key, value, output, sums[..., 0], upstream, options,
            lse_upstream=lse_upstream, packing=packing,
        )  # fmt: skip
    if lse_upstream is None:
        lse_upstream = torch.zeros_like(sums[..., 0])
    rows = query, output, sums, upstream, lse_upstream
    made = [
        tiled_backward(q, k, v, out, s, up, options, lse_up)
        for q, out, s, up, lse_up, k, v in split_packed(packing, rows, [key, value])
    ]
    dquery, dkey, dvalue = (join_packed(packing, x) for x in zip(*made, strict=True))
    return dquery, dkey, dvalue


@flash_forward.register_fake
def forward_shapes(
    query: Tensor, key: Tensor, value: Tensor, *more: Any
) -> tuple[Tensor, Tensor]:
    """Return empty outputs of `flash_forward`, for torch.compile."""
    strict = len(more) == 9 and more[-1]
    kernels = find_limit(query, value, strict) is None
    dtype = torch.promote_types(query.dtype, torch.float32)
    shape = query.shape[:3]
    output = new_rows(query, more[2], *shape, value.shape[-1])
    return output, query.new_empty(*shape, 1 if kernels else 2, dtype=dtype)


@flash_backward.register_fake
def backward_shapes(
    query: Tensor, key: Tensor, value: Tensor, *more: Any
) -> tuple[Tensor, ...]:
    """Return empty outputs of `flash_backward`, for torch.compile."""
    return tuple(new_rows(x, more[2], *x.shape) for x in (query, key, value))


def new_rows(
    like: Tensor,
    offsets: Tensor | None,
    *shape: int,
    new: Callable[..., Tensor] = Tensor.new_empty,
) -> Tensor:
    """Return an empty (B, H, T, _); rows lie before heads if they are packed."""
    B, H, T, width = shape
    if offsets is None:
        return new(like, B, H, T, width)
    return new(like, B, T, H, width).transpose(1, 2)


def keep_for_backward(
    ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]
) -> None:
    """Save every tensor so that autograd detects changes in place."""
    tensors, ctx.numbers = inputs[:7], inputs[7:11]
    ctx.save_for_backward(*tensors, *output)
    ctx.set_materialize_grads(False)


def go_back(ctx: Any, upstream: Tensor | None, dsums: Tensor | None) -> tuple[Any, ...]:
    """Return the gradients on all inputs of the forward pass."""
    *inputs, output, sums = ctx.saved_tensors
    if upstream is None:
        upstream = torch.zeros_like(output)
    if dsums is not None:
        dsums = dsums[..., 0] / read_unit(sums)
    grads = flash_backward(*inputs, output, sums, upstream, *ctx.numbers, dsums)
    return *grads, *[None] * 9


def read_unit(sums: Tensor) -> float:
    """Return the logarithm of the base that the first of the sums has."""
    return math.log(2) if sums.shape[-1] == 1 else 1.0


def compute_lse(sums: Tensor) -> Tensor:
    """Return the natural logsumexp; its gradient goes through the first sum."""
    lse = sums[..., 0] * read_unit(sums)
    return lse if sums.shape[-1] == 1 else lse + sums[..., 1].detach().log()


def refuse_second_derivatives(ctx: Any, *_: Any) -> None:
    """Refuse to differentiate a gradient."""
    raise NotImplementedError(
        "second derivatives were requested (a gradient of a gradient, for "
        "example after create_graph=True), but flash_attention has only "
        "first ones: use attend"
    )


flash_forward.register_autograd(go_back, setup_context=keep_for_backward)
flash_backward.register_autograd(refuse_second_derivatives)


def split_packed(
    packing: Packing, rows: Sequence[Tensor], columns: Sequence[Tensor]
) -> Iterator[list[Tensor]]:
    """Yield for each sequence its rows and its columns of (B, H, N, ...).

    Without packing, they are one sequence. This reads the offsets.
    """
    split: list[Sequence[Tensor]] = []
    names = "query_offsets", "key_offsets"
    for name, offsets, given in zip(names, packing, (rows, columns), strict=True):
        counts = read_counts(name, offsets, given[0].shape[2])
        split += [x.split(counts, 2) for x in given]
    return map(list, zip(*split, strict=True))


def join_packed(packing: Packing, parts: Sequence[Tensor]) -> Tensor:
    """Return the sequences' (B, H, _, E) as one, in the strides of `new_rows`."""
    if packing[0] is None:
        return parts[0]
    return torch.cat([x.transpose(1, 2) for x in parts], 1).transpose(1, 2)


def clear_padding(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Return keys or values (B, G, S, _) with zeros after each length.

    What lies there may be NaN, and 0 · NaN is NaN.
    """
    if lengths is None:
        return x
    columns = torch.arange(x.shape[2], device=x.device)
    return x.masked_fill((columns >= lengths[:, None])[:, None, :, None], 0.0)


def tiled_forward(
    query: Tensor, key: Tensor, value: Tensor, options: Options
) -> tuple[Tensor, Tensor]:
    """Return the output and the sums of the tiled PyTorch version."""
    key, value = (clear_padding(x, options.key_lengths) for x in (key, value))
    groups = key.shape[1], -1
    query, key, value = (x.unflatten(1, groups) for x in (query, key, value))
    scores = MaskedTileScores(query, key, options)
    output, *sums = accumulate_tiles(query, key, value, scores=scores)
    return output.flatten(1, 2), torch.stack(sums, -1).flatten(1, 2)


def tiled_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    sums: Tensor,
    upstream: Tensor,
    options: Options,
    lse_upstream: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of the tiled PyTorch version.

    Here the upstream gradient of a query is divided by its total, instead of
    its weights: the weights then need only the maximum, which is exact.
    """
    key, value = (clear_padding(x, options.key_lengths) for x in (key, value))
    maximum, total = sums.unbind(-1)
    total = total.masked_fill(total == 0, 1.0)
    upstream = promote_to_float32(upstream) / total[..., None]
    groups, more = (key.shape[1], -1), (maximum, upstream, lse_upstream / total)
    query, key, value, output, maximum, upstream, lse_upstream = (
        x.unflatten(1, groups) for x in (query, key, value, output, *more)
    )
    scores = MaskedTileScores(query, key, options)
    given = query, key, value, output, maximum, upstream
    made = attend_tiled_gradient(*given, scores=scores, lse_upstream=lse_upstream)
    dquery, dkey, dvalue = (x.flatten(1, 2).contiguous() for x in made)
    return dquery, dkey, dvalue
