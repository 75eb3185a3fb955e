"""The forward and the backward pass as custom operators of PyTorch.

As operators (`torch.library.custom_op`) they work under `torch.compile`, which
needs the shapes of their outputs without running them. Each of them runs the
Triton kernels where these take the inputs, and the tiled PyTorch version elsewhere.

Source: https://docs.pytorch.org/tutorials/advanced/python_custom_ops.html
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E value width; `sums` are (B, H, T, 1) from the kernels,
    the logsumexp to base 2, and (B, H, T, 2) from the tiles, the maximum and
    the total of exp(score - maximum)
"""

from typing import Any

import torch
from torch import Tensor

from attnbook.attention.tiled import (
    accumulate_tiles,
    attend_tiled_gradient,
    promote_to_float32,
)
from attnbook.flash.options import MaskedTileScores, Options, require_length_values
from attnbook.flash.sizes import find_limit, warn_once


@torch.library.custom_op("attnbook::flash_forward", mutates_args=())
def flash_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_lengths: Tensor | None,
    alibi_slopes: Tensor | None,
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
    reason = find_limit(query, value, strict)
    if reason is None:
        from attnbook.flash import launch

        output, lse = launch.forward(query, key, value, options)
        return output, lse[..., None]
    warn_once(*reason)
    return tiled_forward(query, key, value, options)


@torch.library.custom_op("attnbook::flash_backward", mutates_args=())
def flash_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_lengths: Tensor | None,
    alibi_slopes: Tensor | None,
    output: Tensor,
    sums: Tensor,
    upstream: Tensor,
    causal: bool,
    window: int | None,
    softcap: float | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients on query, key and value, from a forward pass."""
    options = Options(causal, window, key_lengths, alibi_slopes, softcap, scale)
    given = query, key, value, output
    if sums.shape[-1] == 1:
        from attnbook.flash import launch

        return launch.backward(*given, sums[..., 0], upstream, options)
    maximum, total = sums.unbind(-1)
    return tiled_backward(*given, maximum, total, upstream, options)


@flash_forward.register_fake
def forward_shapes(
    query: Tensor, key: Tensor, value: Tensor, *more: Any
) -> tuple[Tensor, Tensor]:
    """Return empty outputs of `flash_forward`, for torch.compile."""
    strict = len(more) == 7 and more[-1]
    kernels = find_limit(query, value, strict) is None
    dtype = torch.promote_types(query.dtype, torch.float32)
    shape = query.shape[:3]
    output = query.new_empty(*shape, value.shape[-1])
    return output, query.new_empty(*shape, 1 if kernels else 2, dtype=dtype)


@flash_backward.register_fake
def backward_shapes(
    query: Tensor, key: Tensor, value: Tensor, *_: Any
) -> tuple[Tensor, ...]:
    """Return empty outputs of `flash_backward`, for torch.compile."""
    return tuple(x.new_empty(x.shape) for x in (query, key, value))


def keep_for_backward(
    ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]
) -> None:
    """Save every tensor so that autograd detects changes in place."""
    tensors, ctx.numbers = inputs[:5], inputs[5:9]
    ctx.save_for_backward(*tensors, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def go_back(ctx: Any, upstream: Tensor, _: Any) -> tuple[Any, ...]:
    """Return the gradients on all inputs of the forward pass."""
    return *flash_backward(*ctx.saved_tensors, upstream, *ctx.numbers), *[None] * 7


def refuse_second_derivatives(ctx: Any, *_: Any) -> None:
    """Refuse to differentiate a gradient."""
    raise NotImplementedError(
        "second derivatives were requested (a gradient of a gradient, for "
        "example after create_graph=True), but flash_attention has only "
        "first ones: use attend"
    )


flash_forward.register_autograd(go_back, setup_context=keep_for_backward)
flash_backward.register_autograd(refuse_second_derivatives)


def split_groups(*tensors: Tensor, groups: int) -> list[Tensor]:
    """Return (B, H, ...) as (B, G, H / G, ...)."""
    return [x.unflatten(1, (groups, -1)) for x in tensors]


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
    query, key, value = split_groups(query, key, value, groups=key.shape[1])
    scores = MaskedTileScores(query, key, options)
    output, *sums = accumulate_tiles(query, key, value, scores=scores)
    return output.flatten(1, 2), torch.stack(sums, -1).flatten(1, 2)


def tiled_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    maximum: Tensor,
    total: Tensor,
    upstream: Tensor,
    options: Options,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of the tiled PyTorch version.

    Here the upstream gradient of a query is divided by its total, instead of
    its weights: the weights then need only the maximum, which is exact.
    """
    key, value = (clear_padding(x, options.key_lengths) for x in (key, value))
    some = total.masked_fill(total == 0, 1.0)[..., None]
    query, key, value, output, maximum, upstream = split_groups(
        query, key, value, output, maximum, promote_to_float32(upstream) / some,
        groups=key.shape[1],
    )  # fmt: skip
    scores = MaskedTileScores(query, key, options)
    made = attend_tiled_gradient(
        query, key, value, output, maximum, upstream, scores=scores
    )
    dquery, dkey, dvalue = (x.flatten(1, 2).contiguous() for x in made)
    return dquery, dkey, dvalue
