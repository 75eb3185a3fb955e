"""`flash_attention`: exact attention without the (T, S) scores.

On an NVIDIA GPU the Triton kernels of this package, everywhere else the tiles
of `attnbook.tiled`. Importing it imports no Triton.

Chapter: chapters/11_flash_attention
Source: Dao (2023), algorithms 1 and 2, https://arxiv.org/abs/2307.08691;
    departures: masks align at the bottom right, and a query that sees no key
    gets zeros
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E value width
"""

from importlib.util import find_spec

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.flash.options import Options, Seen
from attnbook.flash.refusals import refuse
from attnbook.tiled import attend_tiled_gradient, tiled_sums, wide

__all__ = ["flash_attention"]


def flash_attention(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G S D"],
    value: Float[Tensor, "B G S E"],
    *,
    causal: bool = False,
    window: int | None = None,
    key_lengths: Int[Tensor, " B"] | None = None,
    alibi_slopes: Float[Tensor, "... H"] | None = None,
    softcap: float | int | None = None,
    scale: float | int | None = None,
) -> Float[Tensor, "B H T E"]:
    """Return what `attend` returns, in memory that grows with T + S.

    The products are scaled, capped, biased and masked, in this order. The last
    query stands at the last key.

    Args:
        query: what is asked.
        key: what it is compared with; H / G consecutive heads share one.
        value: what is averaged; one value a key.
        causal: whether no query sees a key after its own.
        window: keys a query sees, looking back, its own included; none after.
        key_lengths: keys of each text that are no padding.
        alibi_slopes: of each head; slope · distance is subtracted.
        softcap: c, where scores become c · tanh(score / c).
        scale: factor of the products; 1/√D unless given.

    Raises:
        ValueError: if something does not fit, or the device's kernel does not
            take it.
    """
    options = Options(causal, window, key_lengths, alibi_slopes, softcap, scale)
    refuse(query, key, value, options)
    return Flash.apply(query, key, value, options)


class Flash(torch.autograd.Function):
    """Forwards and backwards, by kernels or by tiles."""

    @staticmethod
    def forward(ctx, query, key, value, options):
        """Return the output; keep each query's sums for the way back."""
        run = kernels() if query.is_cuda else by_tiles
        output, *sums = run(query, key, value, options)
        ctx.save_for_backward(query, key, value, output, *sums)
        ctx.options = options
        return output

    @staticmethod
    def backward(ctx, upstream):
        """Return the gradients on query, key and value.

        Raises:
            NotImplementedError: if they are to have gradients themselves.
        """
        if torch.is_grad_enabled():
            raise NotImplementedError(
                "create_graph=True asks for second derivatives, but "
                "flash_attention has only first ones: use attend"
            )
        saved = ctx.saved_tensors
        run = kernels(back=True) if saved[0].is_cuda else by_tiles_gradient
        return *run(*saved, upstream, ctx.options), None


def kernels(back: bool = False):
    """Return what launches the kernels, or their backward pass."""
    if find_spec("triton") is None:
        return by_tiles_gradient if back else by_tiles
    from attnbook.flash import launch

    return launch.backward if back else launch.forward


def grouped(*tensors: Tensor, groups: int) -> list[Tensor]:
    """Return (B, H, ...) as (B, G, H / G, ...)."""
    return [x.unflatten(1, (groups, -1)) for x in tensors]


def by_tiles(query, key, value, options):
    """Return output, maxima and totals, by tiles in PyTorch."""
    query, key, value = grouped(query, key, value, groups=key.shape[1])
    scores = Seen(query, key, options)
    made = tiled_sums(query, key, value, scores=scores)
    return [x.flatten(1, 2) for x in made]


def by_tiles_gradient(
    query, key, value, output, maximum, total, upstream, options
):
    """Return the gradients on query, key and value, by tiles in PyTorch.

    What a query passes back is divided by its total here, and not its weights:
    they then need the maximum alone, which is exact.
    """
    some = total.masked_fill(total == 0, 1.0)[..., None]
    split = grouped(
        query, key, value, output, maximum, wide(upstream) / some,
        groups=key.shape[1],
    )  # fmt: skip
    scores = Seen(split[0], split[1], options)
    made = attend_tiled_gradient(*split, scores=scores)
    return [x.flatten(1, 2) for x in made]
