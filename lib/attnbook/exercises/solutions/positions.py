"""Waves, rotation and linear penalty in a few lines each.

Source: Vaswani et al. (2017), section 3.5, https://arxiv.org/abs/1706.03762;
    Su et al. (2021), section 3.4, equation 34,
    https://arxiv.org/abs/2104.09864; Press et al. (2022), section 3,
    https://arxiv.org/abs/2108.12409
Axes: B batch, H heads, T positions that ask, S positions asked, C model width,
    D width of a head
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def sinusoidal(length: int, width: int) -> Float[Tensor, "T C"]:
    """Return sine and cosine of each pair's angle, interleaved."""
    steps = 10000.0 ** -(torch.arange(0, width, 2) / width)
    angle = torch.arange(length)[:, None] * steps
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


def rotate(
    x: Float[Tensor, "B H T D"],
    positions: Int[Tensor, "T"],
    base: float = 10000.0,
) -> Float[Tensor, "B H T D"]:
    """Return x, columns 2i and 2i + 1 rotated by position · base^(-2i/D)."""
    D = x.shape[-1]
    # In single precision at least: half precision cannot count positions.
    steps = base ** -(torch.arange(0, D, 2, dtype=torch.float64) / D)
    angle = positions[:, None] * steps
    sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    pair = even * cosine - odd * sine, even * sine + odd * cosine
    return torch.stack(pair, dim=-1).flatten(-2)


def alibi(heads: int, queries: int, keys: int) -> Float[Tensor, "H T S"]:
    """Return minus slope times distance; the last query is at the last key."""
    slopes = 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)
    t = torch.arange(keys - queries, keys)[:, None]
    return -slopes[:, None, None] * (t - torch.arange(keys))
