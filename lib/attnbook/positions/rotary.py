"""Rotary positions: queries and keys turn, and only their distance remains.

Chapter: chapters/08_positions
Source: Su et al. (2021), sections 3.2 and 3.4, equations 13 to 16 and 34,
    https://arxiv.org/abs/2104.09864, which pairs neighbours (0, 1), (2, 3), ...
    The other pairing, column i with column i + D / 2, is that of GPT-NeoX and
    of Llama in transformers; a permutation of columns leads from one to the
    other.
Axes: B batch, H heads, T positions, N
    positions of one text or of each, D width of a head, P pairs (D / 2)
"""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from attnbook.positions.added import frequencies


def angles(
    positions: Shaped[Tensor, "*N"], steps: Float[Tensor, "P"]
) -> Float[Tensor, "*N P"]:
    """Return how far each pair has turned at each position."""
    return positions[..., None] * steps.to(positions.device)


def turned(
    x: Float[Tensor, "*B T D"], angle: Float[Tensor, "*#B T P"]
) -> Float[Tensor, "*B T D"]:
    """Return x with columns (2i, 2i + 1) turned by angle i."""
    sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
    even, odd = x[..., ::2], x[..., 1::2]
    pair = even * cosine - odd * sine, even * sine + odd * cosine
    return torch.stack(pair, dim=-1).flatten(-2)


def turned_halves(
    x: Float[Tensor, "*B T D"], angle: Float[Tensor, "*#B T P"]
) -> Float[Tensor, "*B T D"]:
    """Return x with columns (i, i + D / 2) turned by angle i."""
    sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    pair = first * cosine - second * sine, first * sine + second * cosine
    return torch.cat(pair, dim=-1)


def rotate(
    x: Float[Tensor, "B H T D"],
    positions: Shaped[Tensor, "*N"],
    base: float | int = 10000.0,
) -> Float[Tensor, "B H T D"]:
    """Return queries or keys turned to their positions, neighbours paired.

    Args:
        x: queries or keys.
        positions: (T,), or (B, 1, T) if each text of a batch has its own.
        base: of the frequencies.
    """
    return turned(x, angles(positions, steps_for(x, base)))


def rotate_halves(
    x: Float[Tensor, "B H T D"],
    positions: Shaped[Tensor, "*N"],
    base: float | int = 10000.0,
) -> Float[Tensor, "B H T D"]:
    """Return the same with columns i and i + D / 2 paired."""
    return turned_halves(x, angles(positions, steps_for(x, base)))


def steps_for(
    x: Float[Tensor, "... D"], base: float | int
) -> Float[Tensor, "P"]:
    """Return the frequencies for x: never in half precision.

    bfloat16 has 8 bits: beyond 256 it cannot even count positions.
    """
    double = x.dtype == torch.float64
    return frequencies(
        x.shape[-1], base, torch.float64 if double else torch.float32
    )


def to_halves(width: int) -> Int[Tensor, "D"]:
    """Return the columns' order that turns one pairing into the other.

    rotate(x)[..., p] equals rotate_halves(x[..., p]) for p = to_halves(D).
    """
    columns = torch.arange(width)
    return torch.cat([columns[::2], columns[1::2]])
