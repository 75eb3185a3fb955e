"""Feature maps of linear attention: φ, in place of the softmax's exponential.

A feature map is applied to queries and keys, and φ(query) · φ(key) is their
weight before normalization, so its features must not be negative.

Source: Katharopoulos et al. (2020), section 3.2, equation 7,
    https://arxiv.org/abs/2006.16236.
Axes: D width of query and key
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

FeatureMap = Callable[[Tensor], Tensor]


def elu_plus_one(x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
    """Return elu(x) + 1: x + 1 for positive x, exp(x) otherwise.

    `elu(x) + 1` rounds exp(x) to a multiple of the precision at 1; this form
    keeps its digits.
    """
    positive = x > 0
    return torch.where(positive, x + 1, x.masked_fill(positive, 0.0).exp())
