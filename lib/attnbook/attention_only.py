"""A small language model of attention alone, with any kind of positions.

No layer but attention sees another position, and nothing but the method given
tells positions apart, save that each sees only its past.

Chapter: chapters/08_positions
Source: layers without an MLP as in Elhage et al. (2021),
    https://transformer-circuits.pub/2021/framework/index.html; the norm before
    each layer is ours.
Axes: B batch, H heads, T positions, C model width, D width of a head, V
    symbols, P pairs of columns
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.multi_head import merge_heads, split_heads
from attnbook.positions.added import Learned, Sinusoidal, frequencies
from attnbook.positions.biases import Alibi, T5Bias
from attnbook.positions.rotary import angles, turned
from attnbook.positions.shaw import Shaw
from attnbook.scaled_dot_product import attention_weights
from attnbook.self_attention import causal_mask

WIDTH, HEADS, LAYERS = 64, 4, 2
HEAD = WIDTH // HEADS
# The largest distance that has something of its own in Shaw's table, and in
# T5's, whose 16 buckets are exact up to 8: both well within what is trained on.
SHAW_REACH, T5_BUCKETS, T5_REACH = 16, 16, 32
METHODS = ("none", "sinusoidal", "learned", "shaw", "t5", "alibi", "rope")


class Layer(nn.Module):
    """Causal self-attention of several heads, added to what was there."""

    shaw: Shaw | None

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
        turn: Callable[[Tensor], Tensor] | None,
    ) -> Float[Tensor, "B T C"]:
        """Return x and what its positions took from their past."""
        parts = self.project(self.norm(x)).chunk(3, dim=-1)
        query, key, value = (split_heads(part, HEADS) for part in parts)
        if turn is not None:
            query, key = turn(query), turn(key)
        length = x.shape[1]
        if self.shaw is not None:
            bias = self.shaw(query, length)
        mask = causal_mask(length, length, x.device)
        weights = attention_weights(query, key, mask, bias)
        taken = weights @ value
        if self.shaw is not None:
            taken = taken + self.shaw.output(weights)
        return x + self.output(merge_heads(taken))


class AttentionOnly(nn.Module):
    """Embeddings, two attention layers, a readout.

    Args:
        symbols: V.
        method: how positions get in, one of METHODS.
        longest: how many rows the table of "learned" gets.

    Raises:
        ValueError: if there is no such method.
    """

    def __init__(self, symbols: int, method: str, longest: int):
        super().__init__()
        if method not in METHODS:
            raise ValueError(f"the methods are {METHODS}, not {method!r}")
        self.embed = nn.Embedding(symbols, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.readout = nn.Linear(WIDTH, symbols)
        # Drawn last, so that all methods start from the same other weights.
        for layer in self.layers if method == "shaw" else ():
            layer.shaw = Shaw(HEAD, SHAW_REACH)
        self.added = {
            "sinusoidal": lambda: Sinusoidal(WIDTH),
            "learned": lambda: Learned(longest, WIDTH),
        }.get(method, lambda: None)()
        self.bias = {
            "t5": lambda: T5Bias(HEADS, T5_BUCKETS, T5_REACH, False),
            "alibi": lambda: Alibi(HEADS),
        }.get(method, lambda: None)()
        self.steps = frequencies(HEAD) if method == "rope" else None
        self.sharpened = 1.0

    def rescale(self, steps: Float[Tensor, "P"], sharpened: float = 1.0):
        """Turn by other frequencies; multiply queries and keys by a number.

        Raises:
            ValueError: if this model does not turn anything.
        """
        if self.steps is None:
            raise ValueError("only a model with method 'rope' has frequencies")
        self.steps, self.sharpened = steps, sharpened

    def forward(self, text: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Return the logits of what comes after each position."""
        positions = torch.arange(text.shape[1], device=text.device)
        x, bias, turn = self.embed(text), None, None
        if self.added is not None:
            x = x + self.added(positions)
        if self.bias is not None:
            bias = self.bias(len(positions), len(positions)).to(x)
        if self.steps is not None:
            angle = angles(positions, self.steps)

            def turn(part: Tensor) -> Tensor:
                return self.sharpened * turned(part, angle)

        for layer in self.layers:
            x = layer(x, bias, turn)
        return self.readout(self.norm(x))
