"""Rotary embeddings (RoPE): rotated queries and keys depend on distance only.

`interpolate_positions` and the `scale_...` functions return lower frequencies
for longer sequences (context extension); a factor s of 1 changes nothing.

Source: Su et al. (2021), sections 3.2 and 3.4, equations 13 to 16 and 34,
    https://arxiv.org/abs/2104.09864, which pairs neighboring columns (0, 1),
    (2, 3), ...; column i with column i + D / 2 is the pairing of GPT-NeoX and
    of Llama in transformers. Interpolation: Chen et al. (2023), section 2.3,
    equation 4, https://arxiv.org/abs/2306.15595; NTK-aware and YaRN: Peng et
    al. (2023), sections 3.1 to 3.4, https://arxiv.org/abs/2309.00071, whose
    ramp is linear in the number of rotations of a pair within the trained
    length (several implementations: in the index of the pair). Llama 3.1:
    `apply_scaling` of https://github.com/meta-llama/llama-models
Axes: B batch, H heads, T positions, N positions of one sequence or of each, D
    width of a head, P pairs (D / 2)
"""

import math

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from attnbook.positions.absolute import Device, frequencies


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

    Positions are (T,), or (B, 1, T) if each sequence of a batch has its own.
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
    """
    if columns > x.shape[-1]:
        raise ValueError(f"{columns} columns cannot be rotated: x has {x.shape[-1]}")
    first, rest = x[..., :columns], x[..., columns:]
    return torch.cat([rotate(first, positions, base), rest], dim=-1)


def rotary_frequencies(
    x: Float[Tensor, "... D"], base: float | int
) -> Float[Tensor, "P"]:
    """Return the frequencies for x, never in half precision.

    bfloat16 has 8 significant bits: it cannot represent all positions above 256.
    """
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return frequencies(x.shape[-1], base, dtype, x.device)


def halves_permutation(width: int, device: Device = None) -> Int[Tensor, "D"]:
    """Return p with rotate(x)[..., p] equal to rotate_halves(x[..., p])."""
    columns = torch.arange(width, device=device)
    return torch.cat([columns[::2], columns[1::2]])


def interpolate_positions(
    width: int, factor: float | int, base: float | int = 10000.0, device: Device = None
) -> Float[Tensor, "P"]:
    """Return all frequencies divided by the factor (position interpolation)."""
    return frequencies(width, base, device=device) / factor


def scale_ntk_aware(
    width: int, factor: float | int, base: float | int = 10000.0, device: Device = None
) -> Float[Tensor, "P"]:
    """Return frequencies of a larger base: base · factor^(D / (D - 2)).

    The fastest pair is unchanged, the slowest is divided by the factor.
    """
    if width < 4:
        raise ValueError(f"at least 2 pairs (width 4) are needed, not {width}")
    larger = base * factor ** (width / (width - 2))
    return frequencies(width, larger, device=device)


def scale_yarn(
    width: int,
    factor: float | int,
    length: int,
    base: float | int = 10000.0,
    slow: float | int = 1.0,
    fast: float | int = 32.0,
    device: Device = None,
) -> Float[Tensor, "P"]:
    """Return frequencies in which only slow pairs are divided by the factor.

    Args:
        factor: s, how many times longer the sequences become.
        length: the sequence length in training.
        slow: pairs with fewer rotations in this length are divided.
        fast: pairs with more are unchanged; in between, a linear ramp.
    """
    rates = frequencies(width, base, device=device)
    rotations = length * rates / (2 * math.pi)
    unchanged = ((rotations - slow) / (fast - slow)).clamp(0, 1)
    return unchanged * rates + (1 - unchanged) * rates / factor


def scale_llama3(
    width: int,
    factor: float | int = 8.0,
    length: int = 8192,
    base: float | int = 500000.0,
    device: Device = None,
) -> Float[Tensor, "P"]:
    """Return the frequencies of Llama 3.1: YaRN's ramp from 1 to 4 rotations.

    Llama 3.1 has no attention factor. The defaults are those of its models.
    """
    return scale_yarn(width, factor, length, base, 1.0, 4.0, device)
