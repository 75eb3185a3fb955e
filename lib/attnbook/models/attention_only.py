"""A small attention-only language model with any positional encoding.

Only attention combines different positions, and only the given positional
encoding and the causal mask distinguish them.

Source: layers without an MLP as in Elhage et al. (2021),
    https://transformer-circuits.pub/2021/framework/index.html; pre-norm is our
    choice.
Axes: B batch, H heads, T positions, C model width, D width of a head, V
    symbols, P pairs of columns
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention, split_heads
from attnbook.attention.self_attention import causal_mask
from attnbook.positions.absolute import (
    LearnedEncoding,
    SinusoidalEncoding,
    frequencies,
)
from attnbook.positions.biases import AlibiBias, ShawEncoding, T5Bias
from attnbook.positions.rotary import apply_rotary, rotary_angles

WIDTH, HEADS, LAYERS = 64, 4, 2
HEAD = WIDTH // HEADS
# The largest distance with an entry of its own in Shaw's table, and in T5's,
# whose 16 buckets are exact up to 8: both well within the trained length.
SHAW_REACH, T5_BUCKETS, T5_REACH = 16, 16, 32
METHODS = ("none", "sinusoidal", "learned", "shaw", "t5", "alibi", "rope")


class SelfAttention(MultiHeadAttention):
    """Multi-head self-attention whose three projections are one product."""

    def __init__(self) -> None:
        super().__init__(WIDTH, HEADS, bias=False)

    def project(
        self, query: Float[Tensor, "B T C"], memory: Float[Tensor, "B T C"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the heads' queries, keys and values (B, H, T, D)."""
        parts = self.query.weight, self.key.weight, self.value.weight
        projected = F.linear(query, torch.cat(parts)).chunk(3, dim=-1)
        query, key, value = (split_heads(x, self.heads) for x in projected)
        return query, key, value


class ShawAttention(SelfAttention):
    """Self-attention with Shaw's relative positions in scores and output."""

    shaw: ShawEncoding

    def scores(
        self, query: Float[Tensor, "B H T D"], key: Float[Tensor, "B H T D"]
    ) -> Float[Tensor, "B H T T"]:
        """Return the scores of keys to which the distances' are added."""
        return super().scores(query, key) + self.shaw(query, key.shape[2])

    def combine(
        self, weights: Float[Tensor, "B H T T"], value: Float[Tensor, "B H T D"]
    ) -> Float[Tensor, "B H T D"]:
        """Return averages of values to which the distances' are added."""
        return super().combine(weights, value) + self.shaw.output(weights)


class RotaryAttention(SelfAttention):
    """Self-attention with rotated queries and keys.

    Attributes:
        frequencies: of the rotation, one for each pair of columns.
        factor: of queries and keys.
    """

    def __init__(self) -> None:
        super().__init__()
        self.frequencies, self.factor = frequencies(HEAD), 1.0

    def scores(
        self, query: Float[Tensor, "B H T D"], key: Float[Tensor, "B H T D"]
    ) -> Float[Tensor, "B H T T"]:
        """Return the scores of rotated queries and keys."""
        positions = torch.arange(query.shape[2], device=query.device)
        angle = rotary_angles(positions, self.frequencies)
        query, key = (self.factor * apply_rotary(x, angle) for x in (query, key))
        return super().scores(query, key)


class AttentionLayer(nn.Module):
    """Pre-norm causal self-attention with a residual connection."""

    def __init__(self, attention: SelfAttention):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), attention

    def forward(
        self, x: Float[Tensor, "B T C"], bias: Float[Tensor, "H T T"] | None
    ) -> Float[Tensor, "B T C"]:
        """Return x plus the output of causal self-attention."""
        mask = causal_mask(x.shape[1], x.shape[1], x.device)
        return x + self.attention(self.norm(x), mask=mask, bias=bias)


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
        kinds: dict[str, type[SelfAttention]] = {
            "shaw": ShawAttention,
            "rope": RotaryAttention,
        }
        attention = kinds.get(method, SelfAttention)
        self.layers = nn.ModuleList(AttentionLayer(attention()) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.readout = nn.Linear(WIDTH, symbols)
        # Drawn last, so that all methods start from the same other weights.
        for module in list(self.modules()):
            if isinstance(module, ShawAttention):
                module.shaw = ShawEncoding(HEAD, SHAW_REACH)
        self.encoding = {
            "sinusoidal": lambda: SinusoidalEncoding(WIDTH),
            "learned": lambda: LearnedEncoding(longest, WIDTH),
        }.get(method, lambda: None)()
        self.bias = {
            "t5": lambda: T5Bias(HEADS, T5_BUCKETS, T5_REACH, False),
            "alibi": lambda: AlibiBias(HEADS),
        }.get(method, lambda: None)()

    def rescale(self, frequencies: Float[Tensor, "P"], factor: float = 1.0) -> None:
        """Set other rotary frequencies and a factor of queries and keys.

        Raises:
            ValueError: if the method of this model is not "rope".
        """
        for layer in self.layers:
            if not isinstance(layer.attention, RotaryAttention):
                raise ValueError("only a model with method 'rope' has frequencies")
            layer.attention.factor = factor
            layer.attention.frequencies = frequencies.to(self.embed.weight.device)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Return the logits of the next symbol at each position."""
        positions = torch.arange(ids.shape[1], device=ids.device)
        x, bias = self.embed(ids), None
        if self.encoding is not None:
            x = x + self.encoding(positions)
        if self.bias is not None:
            bias = self.bias(len(positions), len(positions)).to(x)
        for layer in self.layers:
            x = layer(x, bias)
        return self.readout(self.norm(x))
