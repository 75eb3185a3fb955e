"""Layer normalisation: each vector to mean 0 and variance 1, then a gain.

Chapter: chapters/09_transformer
Source: Ba, Kiros and Hinton (2016), section 3, equation 4,
    https://arxiv.org/abs/1607.06450. Departure: ε under the root, against a
    division by zero, as PyTorch has it.
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
    apart = x - x.mean(dim=-1, keepdim=True)
    variance = apart.square().mean(dim=-1, keepdim=True)
    return apart * (variance + eps).rsqrt() * gain + bias


class LayerNorm(nn.Module):
    """Layer normalisation with a learned gain and bias.

    Args:
        width: C.
        eps: what is added to the variance.
    """

    def __init__(self, width: int, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B C"]:
        """Return each vector normalised."""
        return layer_norm(x, self.weight, self.bias, self.eps)
