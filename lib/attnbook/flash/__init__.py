"""`flash_attention`: exact attention without the (T, S) scores.

On an NVIDIA GPU the Triton kernels of this package compute it, everywhere else
the tiles of `attnbook.attention.tiled`. Importing it imports no Triton.

Source: Dao (2023), algorithms 1 and 2, https://arxiv.org/abs/2307.08691;
    departures: masks align at the bottom right, and a query that can attend to
    no key gets zeros
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E value width
"""

from jaxtyping import Float, Int
from torch import Tensor

from attnbook.flash.operators import flash_forward
from attnbook.flash.options import Options, refuse
from attnbook.flash.sizes import FallbackWarning

__all__ = ["FallbackWarning", "flash_attention"]


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
            The numbers are checked where they are on the CPU. Reading them
            from a GPU would wait for it: there, a number below 0 counts as 0
            and one above S as S.
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
    refuse(query, key, value, options)
    given = query, key, value, key_lengths, alibi_slopes
    numbers = options.numbers(query.shape[-1], key.shape[-2])
    return flash_forward(*given, *numbers, strict)[0]
