"""An attention-only language model made by hand.

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
    (2021), https://transformer-circuits.pub/2021/framework/index.html; the weights are
    ours.
Axes: B batch, T positions, C model width, V symbols, N size of a part: C = 4 N
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.attention.self_attention import causal_mask

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
