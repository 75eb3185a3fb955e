"""An induction circuit whose weights are written by hand.

Two attention layers of two heads, without feed-forward networks. The residual
stream of a position consists of four parts, each one-hot or zero: its token,
the token before it, the prediction, and its position.

- Layer 0, head 0 attends to the previous position and copies that token into
  the part "previous".
- Layer 0, head 1 has the same weights, but its output projection is zero.
- Layer 1, head 0 is the induction head: its query is the token, its keys are
  the parts "previous", and it copies the token that it finds into the
  prediction.
- Layer 1, head 1 attends to position 0, and its output projection is zero.

What each head does, and which heads the prediction needs, is therefore known.

Source: the circuit: Elhage et al. (2021), "Induction heads",
    https://transformer-circuits.pub/2021/framework/; these weights are ours.
Axes: B batch, T positions, V symbols, N size of a part, C = 4 N model width,
    D = 2 N width of a head
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.attention.self_attention import causal_mask

PARTS = ("token", "previous", "prediction", "position")
HEADS = 2
# The score of a key that matches; the others have the score 0.
MATCH = 20.0


class HandMadeAttention(MultiHeadAttention):
    """Two heads whose weights start at zero and are then written by hand.

    Args:
        size: N.
    """

    def __init__(self, size: int):
        super().__init__(len(PARTS) * size, HEADS, bias=False)
        self.size = size
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def get_columns(self, part: str) -> slice:
        """Return the columns of the residual stream that hold a part."""
        start = PARTS.index(part) * self.size
        return slice(start, start + self.size)

    @torch.no_grad()
    def match(
        self, head: int, query: str, key: str, table: Float[Tensor, "N N"]
    ) -> None:
        """Let a head compare parts: key j matches query i if table[i, j] is 1.

        Args:
            head: its number.
            query: the part that the query is made of.
            key: the part that the keys are made of.
            table: one-hot rows, or rows of zeros.
        """
        first = head * self.query.weight.shape[0] // HEADS
        rows = slice(first, first + self.size)
        width = self.query.weight.shape[0] // HEADS
        self.query.weight[rows, self.get_columns(query)] = MATCH * width**0.5 * table.T
        self.key.weight[rows, self.get_columns(key)] = torch.eye(self.size)

    @torch.no_grad()
    def copy(self, head: int, source: str, target: str | None) -> None:
        """Let a head copy a part of what it attends to into another part.

        Args:
            head: its number.
            source: the part that the values hold.
            target: the part that the output is added to; None for a head whose
                output projection stays zero.
        """
        first = head * self.value.weight.shape[0] // HEADS
        rows = slice(first, first + self.size)
        self.value.weight[rows, self.get_columns(source)] = torch.eye(self.size)
        if target is not None:
            self.output.weight[self.get_columns(target), rows] = torch.eye(self.size)


class InductionCircuit(nn.Module):
    """The hand-made model: it predicts what followed the same token before.

    Its weights are not trained.

    Args:
        symbols: V; symbol 0 is meant for the first position, which has no
            previous token.
        longest: the largest number of positions.
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
        """Return token and position, one-hot, in their parts.

        Raises:
            ValueError: if there are more positions than the longest.
        """
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
