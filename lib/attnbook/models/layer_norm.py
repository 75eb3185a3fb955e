"""Layer normalization, and RMSNorm, which leaves out the mean.

Source: Ba, Kiros and Hinton (2016), section 3, equation 4,
    https://arxiv.org/abs/1607.06450; RMSNorm: Zhang and Sennrich (2019),
    section 3, equation 4, https://arxiv.org/abs/1910.07467. Departure: ε under
    the root, against a division by zero, as PyTorch has it.
Axes: C model width
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


def layer_norm(
    x: Float[Tensor, "*B C"],
    gain: Float[Tensor, " C"],
    bias: Float[Tensor, " C"],
    eps: float = 1e-5,
) -> Float[Tensor, "*B C"]:
    """Return gain · (x - mean) / √(variance + eps) + bias, vector by vector.

    The variance is the mean of the squares, divided by C and not by C - 1.
    """
    centered = x - x.mean(dim=-1, keepdim=True)
    variance = centered.square().mean(dim=-1, keepdim=True)
    return centered * (variance + eps).rsqrt() * gain + bias


class LayerNorm(nn.Module):
    """Layer normalization with a learned gain and bias.

    Args:
        width: C.
        eps: ε, added to the variance.
    """

    def __init__(self, width: int, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        """Return each vector normalized."""
        return layer_norm(x, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """Division by the root mean square, with a learned gain.

    Args:
        width: C.
        eps: ε, added to the mean square.
    """

    def __init__(self, width: int, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        """Return each vector, divided by its root mean square."""
        mean_square = x.square().mean(dim=-1, keepdim=True)
        return x * (mean_square + self.eps).rsqrt() * self.weight
