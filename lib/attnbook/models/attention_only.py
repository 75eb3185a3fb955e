"""Attention-only language models: with any positional encoding, or made by hand.

In `AttentionOnlyTransformer` only attention combines positions, and only the positional
encoding and the causal mask distinguish them.

`InductionCircuit` has two attention layers of two heads with weights written by hand.
The residual stream of a position consists of four parts, each one-hot or zero: its
token, the token before it, the prediction, and its position.

- Layer 0, head 0 attends to the previous position and copies that token into
  the part "previous".
- Layer 0, head 1 has the same weights, but its output projection is zero.
- Layer 1, head 0 is the induction head: its query is the token, its keys are
  the parts "previous", and it copies the token that it finds into the
  prediction.
- Layer 1, head 1 attends to position 0, and its output projection is zero.

Source: layers without an MLP, and the circuit ("Induction heads"): Elhage et al.
    (2021), https://transformer-circuits.pub/2021/framework/index.html; pre-norm and the
    circuit's weights are ours.
Axes: B batch, H heads, T positions, C model width, D width of a head, V symbols, P
    pairs of columns, N size of a part: C = 4 N, D = 2 N
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention, split_heads
from attnbook.attention.self_attention import causal_mask
from attnbook.positions.absolute import LearnedEncoding, SinusoidalEncoding, frequencies
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
        """Return the scores of keys and of distances, added."""
        return super().scores(query, key) + self.shaw(query, key.shape[2])

    def combine(
        self, weights: Float[Tensor, "B H T T"], value: Float[Tensor, "B H T D"]
    ) -> Float[Tensor, "B H T D"]:
        """Return averages of values to which the distances' are added."""
        return super().combine(weights, value) + self.shaw.output(weights)


class RotaryAttention(SelfAttention):
    """Self-attention whose queries and keys are rotated and multiplied by a factor."""

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

    `method` is the positional encoding, one of METHODS, or else a ValueError;
    `longest` the number of positions of the encoding "learned".
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
        """Set the rotary frequencies and a factor of queries and keys ("rope" only)."""
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


PARTS = ("token", "previous", "prediction", "position")
CIRCUIT_HEADS = 2
# The score of a key that matches; the others have the score 0.
MATCH = 20.0


class HandMadeAttention(MultiHeadAttention):
    """Two heads whose weights start at zero and are then written by hand."""

    def __init__(self, size: int):
        super().__init__(len(PARTS) * size, CIRCUIT_HEADS, bias=False)
        self.size = size
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def get_columns(self, part: str) -> slice:
        """Return the columns of the residual stream that hold a part."""
        start = PARTS.index(part) * self.size
        return slice(start, start + self.size)

    def get_rows(self, head: int) -> slice:
        """Return the first rows of a head, as many as a part has columns."""
        first = head * len(self.query.weight) // CIRCUIT_HEADS
        return slice(first, first + self.size)

    @torch.no_grad()
    def match(
        self, head: int, query: str, key: str, table: Float[Tensor, "N N"]
    ) -> None:
        """Let key j match query i in a head if table[i, j] is 1: rows one-hot or zero.

        `query` and `key` are the parts of which they are made.
        """
        rows, width = self.get_rows(head), len(self.query.weight) // CIRCUIT_HEADS
        self.query.weight[rows, self.get_columns(query)] = MATCH * width**0.5 * table.T
        self.key.weight[rows, self.get_columns(key)] = torch.eye(self.size)

    @torch.no_grad()
    def copy(self, head: int, source: str, target: str | None) -> None:
        """Let a head copy the part `source` of what it attends to into `target`.

        Without a target the output projection stays zero.
        """
        rows = self.get_rows(head)
        self.value.weight[rows, self.get_columns(source)] = torch.eye(self.size)
        if target is not None:
            self.output.weight[self.get_columns(target), rows] = torch.eye(self.size)


class InductionCircuit(nn.Module):
    """The hand-made model: it predicts what followed the same token before.

    Symbol 0 is meant for the first position, which has no previous token; `longest` is
    the largest number of positions.
    """

    def __init__(self, symbols: int, longest: int):
        super().__init__()
        size = max(symbols, longest)
        self.symbols, self.longest, self.size = symbols, longest, size
        before = torch.eye(size).roll(-1, dims=1)  # row i: position i - 1
        before[0] = 0.0
        first = torch.zeros(size, size)
        first[:, 0] = 1.0
        lower, upper = HandMadeAttention(size), HandMadeAttention(size)
        for head, target in enumerate(("previous", None)):
            lower.match(head, "position", "position", before)
            lower.copy(head, "token", target)
        upper.match(0, "token", "previous", torch.eye(size))
        upper.copy(0, "token", "prediction")
        upper.match(1, "position", "position", first)
        upper.copy(1, "token", None)
        self.layers = nn.ModuleList([lower, upper])
        self.requires_grad_(False)

    def embed(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
        """Return token and position, one-hot, in their parts."""
        B, T = ids.shape
        if self.longest < T:
            raise ValueError(
                f"this circuit has {self.longest} positions, but the sequences have {T}"
            )
        weight = next(self.parameters())
        token = F.one_hot(ids, self.size).to(weight)
        places = torch.arange(T, device=ids.device).expand(B, T)
        position = F.one_hot(places, self.size).to(weight)
        empty = torch.zeros_like(token)
        return torch.cat([token, empty, empty, position], dim=-1)

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Return logits: the weight of each symbol in the prediction."""
        x = self.embed(ids)
        mask = causal_mask(x.shape[1], x.shape[1], x.device)
        for layer in self.layers:
            x = x + layer(x, mask=mask)
        start = PARTS.index("prediction") * self.size
        return x[..., start : start + self.symbols]
