"""Attention with bounded scores: QK-norm and soft-capping.

Source: QK-norm: Dehghani et al. (2023), section 2,
    https://arxiv.org/abs/2302.05442; the soft cap of scores: Gemma Team
    (2024), section 2, https://arxiv.org/abs/2408.00118. Departure: the norms
    have a bias.
Axes: B batch, H heads, T queries, S keys, C model width, M memory width
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnbook.attention.masked_softmax import masked_softmax
from attnbook.attention.multi_head import (
    MultiHeadAttention,
    merge_heads,
    split_heads,
)
from attnbook.models.layer_norm import LayerNorm


def soft_cap(scores: Float[Tensor, "*B S"], cap: float) -> Tensor:
    """Return cap · tanh(scores / cap): bounded by the cap.

    Raises:
        ValueError: if the cap is not above 0.
    """
    if not cap > 0:
        raise ValueError(f"the cap must be above 0, not {cap}")
    return cap * torch.tanh(scores / cap)


class StabilizedAttention(MultiHeadAttention):
    """Multi-head attention whose scores a subclass can change: see `scores`."""

    def scores(
        self,
        query: Float[Tensor, "B T C"],
        memory: Float[Tensor, "B S C"],
    ) -> Float[Tensor, "B H T S"]:
        """Return the scores before the mask and the softmax."""
        query = split_heads(self.query(query), self.heads)
        key = split_heads(self.key(memory), self.heads)
        return (query * query.shape[-1] ** -0.5) @ key.mT

    def forward(
        self,
        query: Float[Tensor, "B T C"],
        memory: Float[Tensor, "B S C"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the output (B, T, C), and weights (B, H, T, S) if requested.

        Args:
            query: the input of the queries.
            memory: the input of keys and values; for self-attention, omitted.
            mask: True where a query can attend; broadcasts to (B, H, T, S).
            need_weights: whether to return each head's weights.
        """
        memory = query if memory is None else memory
        scores = self.scores(query, memory)
        if mask is None:
            weights = scores.softmax(dim=-1)
        else:
            weights = masked_softmax(scores, mask)
        value = split_heads(self.value(memory), self.heads)
        output = self.output(merge_heads(self.drop(weights) @ value))
        return (output, weights) if need_weights else output


class QKNormAttention(StabilizedAttention):
    """Multi-head attention with layer-normalized queries and keys (QK-norm).

    Args:
        width: C.
        heads: H; each head's queries and keys are normalized.
    """

    def __init__(self, width: int, heads: int):
        super().__init__(width, heads)
        self.norms = nn.ModuleList(LayerNorm(width // heads) for _ in range(2))

    def scores(
        self,
        query: Float[Tensor, "B T C"],
        memory: Float[Tensor, "B S C"],
    ) -> Float[Tensor, "B H T S"]:
        """Return the scores of normalized queries and keys."""
        query = self.norms[0](split_heads(self.query(query), self.heads))
        key = self.norms[1](split_heads(self.key(memory), self.heads))
        return (query * query.shape[-1] ** -0.5) @ key.mT


class SoftCapAttention(StabilizedAttention):
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
        self,
        query: Float[Tensor, "B T C"],
        memory: Float[Tensor, "B S C"],
    ) -> Float[Tensor, "B H T S"]:
        """Return the capped scores."""
        return soft_cap(super().scores(query, memory), self.cap)
