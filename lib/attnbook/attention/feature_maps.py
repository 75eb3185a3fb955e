"""Feature maps of linear attention: φ, in place of the softmax's exponential.

A feature map is applied to queries and keys, and φ(query) · φ(key) is their
weight before normalization, so its features must not be negative (or their
products, for the Taylor features).

Source: elu + 1: Katharopoulos et al. (2020), section 3.2, equation 7,
    https://arxiv.org/abs/2006.16236; Taylor series: Arora et al. (2024),
    section 4.1, https://arxiv.org/abs/2402.18668; positive random features:
    Choromanski et al. (2021), section 2.3, https://arxiv.org/abs/2009.14794.
    Departure: random features are drawn independently, not orthogonally.
Axes: D width of query and key, F number of features
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


def taylor_features(x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B F"]:
    """Return features with φ(q) · φ(k) = 1 + s + s²/2, where s = q · k / √D.

    These are the first terms of exp(s), from 1 + D + D² features.
    """
    x = x * x.shape[-1] ** -0.25
    squares = (x[..., :, None] * x[..., None, :]).flatten(-2) * 0.5**0.5
    return torch.cat([torch.ones_like(x[..., :1]), x, squares], dim=-1)


def draw_random_features(
    width: int, count: int, seed: int, dtype: torch.dtype | None = None
) -> Float[Tensor, "F D"]:
    """Return the directions of `count` random features, from a private seed."""
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(count, width, generator=rng, dtype=dtype)


def random_features(
    x: Float[Tensor, "*B D"], directions: Float[Tensor, "F D"]
) -> Float[Tensor, "*B F"]:
    """Return features whose products are exp(q · k / √D) on average.

    Each is exp(w · x - |x|²/2) / √F for one direction w and x divided by ⁴√D.
    `functools.partial(random_features, directions=...)` is a feature map.
    """
    x = x * x.shape[-1] ** -0.25
    half_square = x.square().sum(dim=-1, keepdim=True) / 2
    count = directions.shape[0]
    return (x @ directions.transpose(-2, -1) - half_square).exp() * count**-0.5
