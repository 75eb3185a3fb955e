"""A small attention-only language model with any positional encoding.

Only attention combines different positions, and only the given positional
encoding and the causal mask distinguish them.

Source: layers without an MLP as in Elhage et al. (2021),
    https://transformer-circuits.pub/2021/framework/index.html; pre-norm is our
    choice.
Axes: B batch, H heads, T positions, C model width, D width of a head, V
    symbols, P pairs of columns
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.multi_head import merge_heads, split_heads
from attnbook.attention.scaled_dot_product import attention_weights
from attnbook.attention.self_attention import causal_mask
from attnbook.positions.absolute import (
    LearnedEncoding,
    SinusoidalEncoding,
    frequencies,
)
from attnbook.positions.biases import AlibiBias, T5Bias
from attnbook.positions.rotary import apply_rotary, rotary_angles
from attnbook.positions.shaw import ShawEncoding

WIDTH, HEADS, LAYERS = 64, 4, 2
HEAD = WIDTH // HEADS
# The largest distance with an entry of its own in Shaw's table, and in T5's,
# whose 16 buckets are exact up to 8: both well within the trained length.
SHAW_REACH, T5_BUCKETS, T5_REACH = 16, 16, 32
METHODS = ("none", "sinusoidal", "learned", "shaw", "t5", "alibi", "rope")


class AttentionLayer(nn.Module):
    """Pre-norm causal multi-head self-attention with a residual connection."""

    shaw: ShawEncoding | None

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.project = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.output = nn.Linear(WIDTH, WIDTH, bias=False)
        self.shaw = None

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        bias: Float[Tensor, "H T T"] | None,
        rotate: Callable[[Tensor], Tensor] | None,
    ) -> Float[Tensor, "B T C"]:
        """Return x plus the output of causal self-attention."""
        parts = self.project(self.norm(x)).chunk(3, dim=-1)
        query, key, value = (split_heads(part, HEADS) for part in parts)
        if rotate is not None:
            query, key = rotate(query), rotate(key)
        length = x.shape[1]
        if self.shaw is not None:
            bias = self.shaw(query, length)
        mask = causal_mask(length, length, x.device)
        weights = attention_weights(query, key, mask, bias)
        attended = weights @ value
        if self.shaw is not None:
            attended = attended + self.shaw.output(weights)
        return x + self.output(merge_heads(attended))


class AttentionOnlyTransformer(nn.Module):
    """Embeddings, two attention layers and an output layer.

    Args:
        symbols: V.
        method: the positional encoding, one of METHODS.
        longest: number of positions of the encoding "learned".

    Raises:
        ValueError: if there is no such method.
    """

    def __init__(self, symbols: int, method: str, longest: int):
        super().__init__()
        if method not in METHODS:
            raise ValueError(f"the methods are {METHODS}, not {method!r}")
        self.embed = nn.Embedding(symbols, WIDTH)
        self.layers = nn.ModuleList(AttentionLayer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.readout = nn.Linear(WIDTH, symbols)
        # Drawn last, so that all methods start from the same other weights.
        for layer in self.layers if method == "shaw" else ():
            layer.shaw = ShawEncoding(HEAD, SHAW_REACH)
        self.encoding = {
            "sinusoidal": lambda: SinusoidalEncoding(WIDTH),
            "learned": lambda: LearnedEncoding(longest, WIDTH),
        }.get(method, lambda: None)()
        self.bias = {
            "t5": lambda: T5Bias(HEADS, T5_BUCKETS, T5_REACH, False),
            "alibi": lambda: AlibiBias(HEADS),
        }.get(method, lambda: None)()
        self.frequencies = frequencies(HEAD) if method == "rope" else None
        self.rotary_scale = 1.0

    def rescale(
        self, frequencies: Float[Tensor, "P"], rotary_scale: float = 1.0
    ):
        """Set other rotary frequencies and a factor of queries and keys.

        Raises:
            ValueError: if the method of this model is not "rope".
        """
        if self.frequencies is None:
            raise ValueError("only a model with method 'rope' has frequencies")
        self.frequencies = frequencies.to(self.embed.weight.device)
        self.rotary_scale = rotary_scale

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Return the logits of the next symbol at each position."""
        positions = torch.arange(ids.shape[1], device=ids.device)
        x, bias, rotate = self.embed(ids), None, None
        if self.encoding is not None:
            x = x + self.encoding(positions)
        if self.bias is not None:
            bias = self.bias(len(positions), len(positions)).to(x)
        if self.frequencies is not None:
            angle = rotary_angles(positions, self.frequencies)

            def rotate(part: Tensor) -> Tensor:
                return self.rotary_scale * apply_rotary(part, angle)

        for layer in self.layers:
            x = layer(x, bias, rotate)
        return self.readout(self.norm(x))
