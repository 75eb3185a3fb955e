"""Positions added to the embeddings: waves, or a table that is learned.

Chapter: chapters/08_positions
Source: Vaswani et al. (2017), section 3.5, https://arxiv.org/abs/1706.03762;
    a learned table as in Gehring et al. (2017), section 3.1,
    https://arxiv.org/abs/1705.03122
Axes: T positions, C width, P pairs of columns (C / 2)
"""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn


def frequencies(
    width: int, base: float | int = 10000.0, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "P"]:
    """Return the angle per step of each pair of columns, fast ones first.

    Pair i of P turns by base^(-i / P) a step, so that its wavelength is
    2π · base^(i / P) steps.

    Raises:
        ValueError: if the width is not even.
    """
    if width < 2 or width % 2:
        raise ValueError(f"pairs need an even width of at least 2, not {width}")
    pair = torch.arange(0, width, 2, dtype=torch.float64)
    return (base ** (-pair / width)).to(dtype)


def sinusoidal_at(
    positions: Shaped[Tensor, "*T"], width: int, base: float | int = 10000.0
) -> Float[Tensor, "*T C"]:
    """Return sine and cosine, interleaved, at positions, whole or not."""
    double = positions.dtype == torch.float64
    dtype = torch.float64 if double else torch.float32
    steps = frequencies(width, base, dtype).to(positions.device)
    angle = positions[..., None] * steps
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


def sinusoidal(
    length: int, width: int, base: float | int = 10000.0
) -> Float[Tensor, "T C"]:
    """Return the waves at positions 0 to length - 1."""
    return sinusoidal_at(torch.arange(length), width, base)


def shift(
    by: float | int, width: int, base: float | int = 10000.0
) -> Float[Tensor, "C C"]:
    """Return the matrix M with sinusoidal_at(p + by) = M sinusoidal_at(p).

    It does not depend on p: each pair of columns turns by its own angle.
    """
    angle = by * frequencies(width, base, torch.float64)
    sine, cosine = angle.sin(), angle.cos()
    # sin(a + b) = cos b · sin a + sin b · cos a; cos(a + b) likewise.
    top = torch.stack([cosine, sine], dim=-1)
    bottom = torch.stack([-sine, cosine], dim=-1)
    blocks = torch.stack([top, bottom], dim=-2).float()
    return torch.block_diag(*blocks)


class Sinusoidal(nn.Module):
    """The waves, without parameters, at any position."""

    def __init__(self, width: int, base: float | int = 10000.0):
        super().__init__()
        self.width, self.base = width, base

    def forward(self, positions: Int[Tensor, "*T"]) -> Float[Tensor, "*T C"]:
        """Return what is added to the embeddings at these positions."""
        return sinusoidal_at(positions, self.width, self.base)


class Learned(nn.Module):
    """A table with a row for each position up to a length.

    Args:
        length: how many rows; there is no more.
        width: C.
        spread: standard deviation of the entries at the start.
    """

    def __init__(self, length: int, width: int, spread: float | int = 0.02):
        super().__init__()
        self.table = nn.Parameter(spread * torch.randn(length, width))

    def forward(self, positions: Int[Tensor, "*T"]) -> Float[Tensor, "*T C"]:
        """Return what is added to the embeddings at these positions.

        Raises:
            ValueError: if a position has no row.
        """
        rows = len(self.table)
        low, high = (int(x) for x in positions.aminmax())
        if low < 0 or high >= rows:
            raise ValueError(
                f"positions {low} to {high} are asked for, but the table has "
                f"rows 0 to {rows - 1}"
            )
        return self.table[positions]
