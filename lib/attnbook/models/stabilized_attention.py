"""Attention with bounded scores: QK-norm and soft-capping.

Source: QK-norm: Dehghani et al. (2023), section 2,
    https://arxiv.org/abs/2302.05442; the soft cap of scores: Gemma Team
    (2024), section 2, https://arxiv.org/abs/2408.00118. Departure: the norms
    have a bias.
Axes: B batch, H heads, T queries, S keys, C model width, D width of a
    head
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.models.layer_norm import LayerNorm


def soft_cap(scores: Float[Tensor, "*B S"], cap: float) -> Tensor:
    """Return cap · tanh(scores / cap): bounded by the cap.

    Raises:
        ValueError: if the cap is not above 0.
    """
    if not cap > 0:
        raise ValueError(f"the cap must be above 0, not {cap}")
    return cap * torch.tanh(scores / cap)


class QKNormAttention(MultiHeadAttention):
    """Multi-head attention with layer-normalized queries and keys (QK-norm).

    Args:
        width: C.
        heads: H; each head's queries and keys are normalized.
    """

    def __init__(self, width: int, heads: int):
        super().__init__(width, heads)
        self.norms = nn.ModuleList(LayerNorm(width // heads) for _ in range(2))

    def scores(
        self, query: Float[Tensor, "B H T D"], key: Float[Tensor, "B H S D"]
    ) -> Float[Tensor, "B H T S"]:
        """Return the scores of normalized queries and keys."""
        return super().scores(self.norms[0](query), self.norms[1](key))


class SoftCapAttention(MultiHeadAttention):
    """Multi-head attention with soft-capped scores.

    Args:
        width: C.
        heads: H.
        cap: the bound of the scores' absolute values.
    """

    def __init__(self, width: int, heads: int, cap: float):
        super().__init__(width, heads)
        self.cap = cap

    def scores(
        self, query: Float[Tensor, "B H T D"], key: Float[Tensor, "B H S D"]
    ) -> Float[Tensor, "B H T S"]:
        """Return the capped scores."""
        return soft_cap(super().scores(query, key), self.cap)
