"""Transformer blocks: attention, feed-forward network, residual connections.

Source: Vaswani et al. (2017), sections 3.1 and 3.3,
    https://arxiv.org/abs/1706.03762; pre-norm: Xiong et al. (2020),
    section 3, https://arxiv.org/abs/2002.04745
Axes: B batch, H heads, T queries, S keys, C model width, F hidden width
"""

from collections.abc import Callable

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.models.layer_norm import LayerNorm

Sublayer = Callable[[Tensor], Tensor]


class PostNorm(nn.Module):
    """Post-norm residual connection: norm(x + sublayer(x)).

    Args:
        width: C.
        dropout: dropout probability of the sublayer's output in training.
    """

    norm: nn.Module

    def __init__(self, width: int, dropout: float = 0.0):
        super().__init__()
        self.norm, self.drop = LayerNorm(width), nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "B T C"], sublayer: Sublayer
    ) -> Float[Tensor, "B T C"]:
        """Return the normalized sum of x and the sublayer's output."""
        return self.norm(x + self.drop(sublayer(x)))

    @staticmethod
    def make_final_norm(width: int) -> nn.Module:
        """Return the layer after the last block: none, it ends with a norm."""
        return nn.Identity()


class PreNorm(PostNorm):
    """Pre-norm residual connection: x + sublayer(norm(x))."""

    def forward(
        self, x: Float[Tensor, "B T C"], sublayer: Sublayer
    ) -> Float[Tensor, "B T C"]:
        """Return the sum of x and the sublayer's output for normalized x."""
        return x + self.drop(sublayer(self.norm(x)))

    @staticmethod
    def make_final_norm(width: int) -> nn.Module:
        """Return the layer after the last block: a norm of the residual sum."""
        return LayerNorm(width)


class FeedForward(nn.Module):
    """Position-wise feed-forward network: C to F, ReLU, F to C.

    Args:
        width: C.
        hidden: F, four times C in the paper.
        dropout: dropout probability of the hidden layer in training.
    """

    def __init__(self, width: int, hidden: int, dropout: float = 0.0):
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """Return each position's vector, passed through the network."""
        return self.down(self.drop(F.relu(self.up(x))))


class EncoderBlock(nn.Module):
    """Self-attention, then the feed-forward network.

    Args:
        width: C.
        heads: H.
        hidden: F.
        dropout: dropout probability of the sublayers' outputs in training.
        residual: the residual connection, `PostNorm` or `PreNorm`.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        dropout: float = 0.0,
        residual: type[nn.Module] = PostNorm,
    ):
        super().__init__()
        self.attention = MultiHeadAttention(width, heads, dropout=dropout)
        self.feed_forward = FeedForward(width, hidden, dropout)
        self.residuals = nn.ModuleList(residual(width, dropout) for _ in range(2))

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "B T C"]:
        """Return x after both sublayers; True in the mask = can attend."""
        first, second = self.residuals
        x = first(x, lambda y: self.attention(y, mask=mask))
        return second(x, self.feed_forward)


class DecoderBlock(nn.Module):
    """Causal self-attention, attention to the memory, feed-forward network.

    Queries of the second attention come from the decoder, keys and values from
    the encoder. It has weights of its own.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        dropout: float = 0.0,
        residual: type[nn.Module] = PostNorm,
    ):
        super().__init__()
        self.attention = MultiHeadAttention(width, heads, dropout=dropout)
        self.cross = MultiHeadAttention(width, heads, dropout=dropout)
        self.feed_forward = FeedForward(width, hidden, dropout)
        self.residuals = nn.ModuleList(residual(width, dropout) for _ in range(3))

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        memory: Float[Tensor, "B S C"],
        mask: Bool[Tensor, "..."] | None = None,
        memory_mask: Bool[Tensor, "..."] | None = None,
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B H T S"]]:
        """Return x after all three sublayers, and cross-attention weights."""
        first, second, third = self.residuals
        recorded: list[Tensor] = []

        def cross_attend(y: Tensor) -> Tensor:
            output, weights = self.cross(y, memory, memory_mask, True)
            recorded.append(weights)
            return output

        x = first(x, lambda y: self.attention(y, mask=mask))
        x = second(x, cross_attend)
        return third(x, self.feed_forward), recorded[0]
