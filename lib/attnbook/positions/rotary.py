"""Rotary embeddings (RoPE): rotated queries and keys depend on distance only.

Source: Su et al. (2021), sections 3.2 and 3.4, equations 13 to 16 and 34,
    https://arxiv.org/abs/2104.09864, which pairs neighboring columns (0, 1),
    (2, 3), ...
    The other pairing, column i with column i + D / 2, is that of GPT-NeoX and
    of Llama in transformers; a permutation of columns converts one to the
    other.
Axes: B batch, H heads, T positions, N
    positions of one sequence or of each, D width of a head, P pairs (D / 2)
"""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from attnbook.positions.absolute import frequencies


def rotary_angles(
    positions: Shaped[Tensor, "*N"], frequencies: Float[Tensor, "P"]
) -> Float[Tensor, "*N P"]:
    """Return the rotation angle of each pair of columns at each position."""
    return positions[..., None] * frequencies.to(positions.device)


def apply_rotary(
    x: Float[Tensor, "*B T D"], angle: Float[Tensor, "*#B T P"]
) -> Float[Tensor, "*B T D"]:
    """Return x with columns (2i, 2i + 1) rotated by angle i."""
    sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
    even, odd = x[..., ::2], x[..., 1::2]
    pair = even * cosine - odd * sine, even * sine + odd * cosine
    return torch.stack(pair, dim=-1).flatten(-2)


def apply_rotary_halves(
    x: Float[Tensor, "*B T D"], angle: Float[Tensor, "*#B T P"]
) -> Float[Tensor, "*B T D"]:
    """Return x with columns (i, i + D / 2) rotated by angle i."""
    sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    pair = first * cosine - second * sine, first * sine + second * cosine
    return torch.cat(pair, dim=-1)


def rotate(
    x: Float[Tensor, "B H T D"],
    positions: Shaped[Tensor, "*N"],
    base: float | int = 10000.0,
) -> Float[Tensor, "B H T D"]:
    """Return queries or keys rotated by position, neighboring columns paired.

    Args:
        x: queries or keys.
        positions: (T,), or (B, 1, T) if each sequence of a batch has its own.
        base: of the frequencies.
    """
    return apply_rotary(x, rotary_angles(positions, rotary_frequencies(x, base)))


def rotate_halves(
    x: Float[Tensor, "B H T D"],
    positions: Shaped[Tensor, "*N"],
    base: float | int = 10000.0,
) -> Float[Tensor, "B H T D"]:
    """Return the same rotation with columns i and i + D / 2 paired."""
    return apply_rotary_halves(x, rotary_angles(positions, rotary_frequencies(x, base)))


def rotate_partly(
    x: Float[Tensor, "B H T D"],
    positions: Shaped[Tensor, "*N"],
    columns: int,
    base: float | int = 10000.0,
) -> Float[Tensor, "B H T D"]:
    """Return x with its first columns rotated and the others unchanged.

    Partial RoPE as in GPT-NeoX-20B (Black et al. 2022, section 2.1.1,
    https://arxiv.org/abs/2204.06745), which rotates a quarter of the columns.
    The frequencies are those of a head with only these columns.

    Args:
        x: queries or keys.
        positions: as in `rotate`.
        columns: how many columns are rotated; even.
        base: of the frequencies.

    Raises:
        ValueError: if x has fewer columns.
    """
    if columns > x.shape[-1]:
        raise ValueError(f"{columns} columns cannot be rotated: x has {x.shape[-1]}")
    first, rest = x[..., :columns], x[..., columns:]
    return torch.cat([rotate(first, positions, base), rest], dim=-1)


def rotary_frequencies(
    x: Float[Tensor, "... D"], base: float | int
) -> Float[Tensor, "P"]:
    """Return the frequencies for x: never in half precision.

    bfloat16 has 8 significant bits: it cannot represent all positions above
    256.
    """
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return frequencies(x.shape[-1], base, dtype, x.device)


def halves_permutation(
    width: int, device: torch.device | str | None = None
) -> Int[Tensor, "D"]:
    """Return the permutation p of columns that converts between the pairings.

    rotate(x)[..., p] equals rotate_halves(x[..., p]) for
    p = halves_permutation(D).
    """
    columns = torch.arange(width, device=device)
    return torch.cat([columns[::2], columns[1::2]])
