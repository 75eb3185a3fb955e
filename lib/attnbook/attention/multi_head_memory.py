"""Multi-head cross-attention of a recurrent decoder to its memory.

It replaces chapter 3's `GlobalAttention` in a `LuongDecoder`.

Source: Vaswani et al. (2017), section 3.2.3 ("encoder-decoder attention"),
    https://arxiv.org/abs/1706.03762; there between Transformer layers, here
    inside chapter 3's recurrent decoder.
Axes: B batch, H heads, T queries, S keys, C query width, M memory width,
    KV keys and values side by side
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention, split_heads


class MultiHeadMemory(nn.Module):
    """Multi-head attention to a memory whose padding is given by lengths.

    Args:
        query: width C of the queries, and of the context.
        memory: width M of the memory.
        heads: H.
    """

    def __init__(self, query: int, memory: int, heads: int):
        super().__init__()
        self.attention = MultiHeadAttention(query, heads, memory, bias=False)

    def key(self, memory: Float[Tensor, "B S M"]) -> Float[Tensor, "B S KV"]:
        """Return projected keys and values, once for each sentence."""
        keys, values = self.attention.key(memory), self.attention.value(memory)
        return torch.cat([keys, values], dim=-1)

    def forward(
        self,
        query: Float[Tensor, "B T C"],
        keys: Float[Tensor, "B S _"],
        value: Float[Tensor, "B S M"],
        lengths: Int[Tensor, " B"],
        step: int = 0,
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B T S"]]:
        """Return the context of each query, and the mean of the heads' weights.

        The values are those that `key` projected from the memory. `value` (the
        memory itself) and `step` are used by other kinds of attention only.
        """
        attention = self.attention
        positions = torch.arange(keys.shape[1], device=keys.device)
        projected_keys, projected_values = keys.chunk(2, dim=-1)
        context, weights = attention.attend(
            split_heads(attention.query(query), attention.heads),
            split_heads(projected_keys, attention.heads),
            split_heads(projected_values, attention.heads),
            positions < lengths[:, None, None, None],
        )
        return context, weights.mean(dim=1)
