"""The blocks of a Transformer: attention, a small network, and what adds them.

Chapter: chapters/09_transformer
Source: Vaswani et al. (2017), sections 3.1 and 3.3,
    https://arxiv.org/abs/1706.03762; the norm before the sublayer: Xiong et
    al. (2020), section 3, https://arxiv.org/abs/2002.04745
Axes: B batch, H heads, T queries, S keys, C model width, F hidden width
"""

from collections.abc import Callable

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnbook.layer_norm import LayerNorm
from attnbook.multi_head import MultiHeadAttention

Sublayer = Callable[[Tensor], Tensor]


class PostNorm(nn.Module):
    """Norm(x + sublayer(x)): what was there, what is new, then the norm.

    Args:
        width: C.
        dropout: share of the sublayer's output dropped in training.
    """

    def __init__(self, width: int, dropout: float = 0.0):
        super().__init__()
        self.norm, self.drop = LayerNorm(width), nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "B T C"], sublayer: Sublayer
    ) -> Float[Tensor, "B T C"]:
        """Return x with what the sublayer makes of it."""
        return self.norm(x + self.drop(sublayer(x)))

    @staticmethod
    def last(width: int) -> nn.Module:
        """Return what follows the last block: nothing, all is normalised."""
        return nn.Identity()


class PreNorm(PostNorm):
    """x + sublayer(norm(x)): a way past every sublayer stays untouched."""

    def forward(
        self, x: Float[Tensor, "B T C"], sublayer: Sublayer
    ) -> Float[Tensor, "B T C"]:
        """Return x with what the sublayer makes of its normalised form."""
        return x + self.drop(sublayer(self.norm(x)))

    @staticmethod
    def last(width: int) -> nn.Module:
        """Return what follows the last block: a norm, for nothing had one."""
        return LayerNorm(width)


class FeedForward(nn.Module):
    """The same small network at every position: C to F, ReLU, back to C.

    Args:
        width: C.
        hidden: F, four times C in the paper.
        dropout: share of the hidden entries dropped in training.
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
        dropout: share of the sublayers' outputs dropped in training.
        around: `PostNorm` or `PreNorm`.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        dropout: float = 0.0,
        around: type[nn.Module] = PostNorm,
    ):
        super().__init__()
        self.attention = MultiHeadAttention(width, heads, dropout=dropout)
        self.feed_forward = FeedForward(width, hidden, dropout)
        self.around = nn.ModuleList(around(width, dropout) for _ in range(2))

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "B T C"]:
        """Return x after both sublayers; True in the mask = may look."""
        first, second = self.around
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
        around: type[nn.Module] = PostNorm,
    ):
        super().__init__()
        self.attention = MultiHeadAttention(width, heads, dropout=dropout)
        self.cross = MultiHeadAttention(width, heads, dropout=dropout)
        self.feed_forward = FeedForward(width, hidden, dropout)
        self.around = nn.ModuleList(around(width, dropout) for _ in range(3))

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        memory: Float[Tensor, "B S C"],
        mask: Bool[Tensor, "..."] | None = None,
        memory_mask: Bool[Tensor, "..."] | None = None,
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B H T S"]]:
        """Return x after the three sublayers, and where it looked in memory."""
        first, second, third = self.around
        looked: list[Tensor] = []

        def look(y: Tensor) -> Tensor:
            output, weights = self.cross(y, memory, memory_mask, True)
            looked.append(weights)
            return output

        x = first(x, lambda y: self.attention(y, mask=mask))
        x = second(x, look)
        return third(x, self.feed_forward), looked[0]
