"""Attention whose scores cannot run away: normalised, or capped.

Chapter: chapters/09_transformer
Source: queries and keys normalised: Dehghani et al. (2023), section 2,
    https://arxiv.org/abs/2302.05442; the soft cap of scores: Gemma Team
    (2024), section 2, https://arxiv.org/abs/2408.00118. Departure: the norms
    have a bias.
Axes: B batch, H heads, T queries, S keys, C model width, M memory width
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnbook.layer_norm import LayerNorm
from attnbook.masked_softmax import masked_softmax
from attnbook.multi_head import MultiHeadAttention, merge_heads, split_heads


def soft_cap(scores: Float[Tensor, "*B S"], cap: float) -> Tensor:
    """Return cap · tanh(scores / cap): small scores stay, none passes the cap.

    Raises:
        ValueError: if the cap is not above 0.
    """
    if not cap > 0:
        raise ValueError(f"a cap of {cap} leaves no scores; it must be above 0")
    return cap * torch.tanh(scores / cap)


class SteadyAttention(MultiHeadAttention):
    """Multi-head attention with normalised queries and keys, or a soft cap.

    With neither it is `MultiHeadAttention`.

    Args:
        width: C.
        heads: H.
        normed: whether each head's queries and keys pass a layer norm.
        cap: what no score may pass; none unless given.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        normed: bool = False,
        cap: float | None = None,
    ):
        super().__init__(width, heads)
        self.cap, self.norms = cap, torch.nn.ModuleList()
        if normed:
            narrow = width // heads
            self.norms.extend(LayerNorm(narrow) for _ in range(2))

    def scores(
        self,
        query: Float[Tensor, "B T C"],
        memory: Float[Tensor, "B S C"],
    ) -> Float[Tensor, "B H T S"]:
        """Return the scores that the softmax gets."""
        query = split_heads(self.query(query), self.heads)
        key = split_heads(self.key(memory), self.heads)
        if self.norms:
            query, key = self.norms[0](query), self.norms[1](key)
        scores = (query * query.shape[-1] ** -0.5) @ key.mT
        return scores if self.cap is None else soft_cap(scores, self.cap)

    def forward(
        self,
        query: Float[Tensor, "B T C"],
        memory: Float[Tensor, "B S C"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return the output (B, T, C); with its weights (B, H, T, S) if asked.

        Args:
            query: what asks.
            memory: what is asked; without it, the queries ask themselves.
            mask: True where a query may look; broadcasts to (B, H, T, S).
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
