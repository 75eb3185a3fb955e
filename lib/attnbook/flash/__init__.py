"""`flash_attention`: exact attention without the (T, S) scores.

On an NVIDIA GPU the Triton kernels of this package compute it, everywhere else
the tiles of `attnbook.attention.tiled`. Importing it imports no Triton.

Source: Dao (2023), algorithms 1 and 2, https://arxiv.org/abs/2307.08691; learned
    sinks: OpenAI (2025), gpt-oss, https://arxiv.org/abs/2508.10925;
    departures: masks align at the bottom right, and a query that can attend to
    no key gets zeros
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E value width
"""

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from attnbook.flash.operators import compute_lse, flash_forward
from attnbook.flash.options import (
    NO_PACKING,
    Options,
    Packing,
    describe,
    refuse,
)
from attnbook.flash.sizes import FallbackWarning

__all__ = [
    "FallbackWarning",
    "apply_sinks",
    "flash_attention",
    "flash_attention_with_lse",
]


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
    strict: bool = False,
) -> Float[Tensor, "B H T E"]:
    """Return what `attend` returns, in memory that grows with T + S.

    The products are scaled, capped, biased and masked, in this order. The last
    query has the position of the last key.

    Inputs that the Triton kernels do not take (single precision, wide heads or
    bfloat16 on a T4, a GPU of another maker) are computed by the tiled PyTorch
    version on the same device. The first such call gives a `FallbackWarning`.
    Inputs on the CPU are always computed by the tiled version, without a
    warning.

    Args:
        key: the keys; H / G consecutive heads of the query share one head.
        causal: whether a query attends to no key after its own position.
        window: number of keys that a query attends to, looking back, its own
            included; none after it.
        key_lengths: for each sequence, how many of its keys are not padding.
            They are int32 or int64, and checked where they are on the CPU.
            Reading them from a GPU would wait for it: there, a number below 0
            counts as 0 and one above S as S.
        alibi_slopes: of each head; slope · distance is subtracted.
        softcap: c, where scores become c · tanh(score / c).
        scale: factor of the products; 1/√D unless given.
        strict: whether to raise an error where the Triton kernels cannot
            compute this, instead of using the tiled version.

    Raises:
        ValueError: if the inputs do not fit each other; with `strict`, also if
            the kernels do not take them.
    """
    options = Options(causal, window, key_lengths, alibi_slopes, softcap, scale)
    return run(query, key, value, options, strict)[0]


def run(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    options: Options,
    strict: bool,
    packing: Packing = NO_PACKING,
) -> tuple[Tensor, Tensor]:
    """Return the output, and the sums of `attnbook.flash.operators`."""
    refuse(query, key, value, options)
    given = query, key, value, options.key_lengths, options.alibi_slopes
    numbers = options.numbers(query.shape[-1], key.shape[-2])
    output, sums = flash_forward(*given, *packing, *numbers, strict)
    return output, sums


def flash_attention_with_lse(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G S D"],
    value: Float[Tensor, "B G S E"],
    *,
    strict: bool = False,
    **options: Any,
) -> tuple[Float[Tensor, "B H T E"], Float[Tensor, "B H T"]]:
    """Return `flash_attention` and each query's logarithm of the sum of exp(score).

    Both have gradients. The logsumexp is in single precision for inputs in half
    precision; a query that can attend to no key has -inf. Options and errors are
    those of `flash_attention`.
    """
    output, sums = run(query, key, value, Options(**options), strict)
    return output, compute_lse(sums)


def apply_sinks(
    output: Float[Tensor, "B H T E"],
    lse: Float[Tensor, "B H T"],
    sinks: Float[Tensor, "H"],
) -> Float[Tensor, "B H T E"]:
    """Return attention with one more logit in each head, which has no value.

    The weights of the keys then sum to sigmoid(lse - sink) instead of 1. All
    three inputs get gradients.

    Args:
        output, lse: of `flash_attention_with_lse`.
        sinks: the logit of each head.

    Raises:
        ValueError: if there is not one logit for each head, or one logsumexp
            for each query.
    """
    H = output.shape[1]
    if lse.shape != output.shape[:3] or lse.device != output.device:
        raise ValueError(
            f"lse must be one number for each query of an output "
            f"{describe(output)}, but is {describe(lse)}"
        )
    fits = isinstance(sinks, Tensor) and sinks.is_floating_point()
    if not fits or sinks.shape != (H,) or sinks.device != output.device:
        raise ValueError(
            f"sinks must be one floating-point number for each of {H} heads on "
            f"{output.device}, but are {describe(sinks)}"
        )
    share = (lse - sinks.to(lse)[:, None]).sigmoid()
    return (output * share[..., None]).to(output)
