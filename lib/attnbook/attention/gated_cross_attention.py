"""Gated cross-attention: text that attends to an image, behind a gate.

The gate starts at 0, where the layer changes nothing: a trained text model can
receive such layers and still computes what it computed before.

Source: Alayrac et al. (2022), "Flamingo: a visual language model for few-shot
    learning", section 2.2 and figure 4, https://arxiv.org/abs/2204.14198.
    Departures: without the gated feed-forward network that follows there, and
    with a LayerNorm of the text before the queries.
Axes: B batch, H heads, T positions of the text, S positions of the image,
    C width of the text, M width of the image, D width of queries and keys
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.attention.self_attention import cross_attention


def gated_cross_attention(
    text: Float[Tensor, "B T C"],
    image: Float[Tensor, "B S M"],
    W_query: Float[Tensor, "D C"],
    W_key: Float[Tensor, "D M"],
    W_value: Float[Tensor, "C M"],
    gate: Float[Tensor, ""],
) -> Float[Tensor, "B T C"]:
    """Return text + tanh(gate) · attention of the text to the image.

    Args:
        text: the input of the queries.
        image: the input of the keys and values, such as one row per patch.
        W_query: projects the text to queries.
        W_key: projects the image to keys.
        W_value: projects the image to values, which are as wide as the text.
        gate: a number; at 0 the text is returned unchanged.

    Raises:
        ValueError: if a projection does not fit the width of what it projects,
            or values are not as wide as the text.
    """
    if W_value.shape[0] != text.shape[-1]:
        raise ValueError(
            f"values of width {W_value.shape[0]} cannot be added to text of "
            f"width {text.shape[-1]}"
        )
    attended = cross_attention(text, image, W_query, W_key, W_value)
    return text + gate.tanh() * attended


class GatedCrossAttention(nn.Module):
    """Multi-head cross-attention behind a gate, with a residual connection.

    Args:
        width: C.
        heads: H.
        image: M; C unless given.
        attention: `MultiHeadAttention` or a variant of it.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        image: int | None = None,
        attention: type[MultiHeadAttention] = MultiHeadAttention,
    ):
        super().__init__()
        self.attention = attention(width, heads, image)
        self.norm = nn.LayerNorm(width)
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(
        self, text: Float[Tensor, "B T C"], image: Float[Tensor, "B S M"]
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B H T S"]]:
        """Return text + tanh(gate) · attention, and the attention weights."""
        attended, weights = self.attention(self.norm(text), image, need_weights=True)
        return text + self.gate.tanh() * attended, weights
