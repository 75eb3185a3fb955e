"""Absolute positional encodings: sinusoidal, or a learned table.

Source: Vaswani et al. (2017), section 3.5, https://arxiv.org/abs/1706.03762;
    a learned table as in Gehring et al. (2017), section 3.1,
    https://arxiv.org/abs/1705.03122
Axes: T positions, C width, P pairs of columns (C / 2)
"""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

Device = torch.device | str | None


def frequencies(
    width: int,
    base: float | int = 10000.0,
    dtype: torch.dtype = torch.float32,
    device: Device = None,
) -> Float[Tensor, "P"]:
    """Return the angle per position of each pair of columns, fastest first.

    Pair i of P rotates by base^(-i / P) per position, so that its wavelength is
    2π · base^(i / P) positions. They are computed in double precision on the
    CPU (Apple's GPUs have none), so that they are the same on every device.
    """
    if width < 2 or width % 2:
        raise ValueError(f"pairs need an even width of at least 2, not {width}")
    pair = torch.arange(0, width, 2, dtype=torch.float64, device="cpu")
    device = torch.get_default_device() if device is None else device
    return (base ** (-pair / width)).to(device, dtype)


def sinusoidal_at(
    positions: Shaped[Tensor, "*T"], width: int, base: float | int = 10000.0
) -> Float[Tensor, "*T C"]:
    """Return interleaved sines and cosines of integer or real positions."""
    double = positions.dtype == torch.float64
    dtype = torch.float64 if double else torch.float32
    rates = frequencies(width, base, dtype, positions.device)
    angle = positions[..., None] * rates
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


def sinusoidal(
    length: int, width: int, base: float | int = 10000.0, device: Device = None
) -> Float[Tensor, "T C"]:
    """Return the sinusoidal encodings of positions 0 to length - 1."""
    return sinusoidal_at(torch.arange(length, device=device), width, base)


def shift_matrix(
    offset: float | int, width: int, base: float | int = 10000.0, device: Device = None
) -> Float[Tensor, "C C"]:
    """Return the matrix M with sinusoidal_at(p + offset) = M sinusoidal_at(p).

    It does not depend on p: it rotates each pair of columns by its own angle.
    """
    angle = offset * frequencies(width, base, torch.float64, device)
    sine, cosine = angle.sin(), angle.cos()
    # sin(a + b) = cos b · sin a + sin b · cos a; cos(a + b) likewise.
    top = torch.stack([cosine, sine], dim=-1)
    bottom = torch.stack([-sine, cosine], dim=-1)
    blocks = torch.stack([top, bottom], dim=-2).float()
    return torch.block_diag(*blocks)


class SinusoidalEncoding(nn.Module):
    """Sinusoidal encodings of any positions; no parameters."""

    def __init__(self, width: int, base: float | int = 10000.0):
        super().__init__()
        self.width, self.base = width, base

    def forward(self, positions: Int[Tensor, "*T"]) -> Float[Tensor, "*T C"]:
        """Return the vectors to add to the embeddings at these positions."""
        return sinusoidal_at(positions, self.width, self.base)


class LearnedEncoding(nn.Module):
    """Learned encodings: one vector of `width` for each of `length` positions.

    `std` is the standard deviation of the initial entries.
    """

    def __init__(self, length: int, width: int, std: float | int = 0.02):
        super().__init__()
        self.table = nn.Parameter(std * torch.randn(length, width))

    def forward(self, positions: Int[Tensor, "*T"]) -> Float[Tensor, "*T C"]:
        """Return the vectors to add to the embeddings at these positions."""
        rows = len(self.table)
        low, high = (int(x) for x in positions.aminmax())
        if low < 0 or high >= rows:
            raise ValueError(
                f"positions {low} to {high} were given, but the table has "
                f"positions 0 to {rows - 1}"
            )
        return self.table[positions]
