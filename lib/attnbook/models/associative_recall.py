"""Associative recall: several lookups at once, by a model with one attention.

A table of items, each with an address and a symbol; a query consists of four
different addresses, and the target is their four symbols in that order. One
average over the table cannot encode which symbol belongs to which address.

Source: the widths are those of multi-head attention in Vaswani et
    al. (2017), section 3.2.2, https://arxiv.org/abs/1706.03762
Axes: B batch, S items in the table, N addresses in a query, V symbols, H heads,
    C model width
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention

ADDRESSES, SYMBOLS, QUERIES, ITEMS = 32, 16, 4, 24


class LookupTables(NamedTuple):
    """A batch of tables with their queries.

    Attributes:
        addresses: (B, S) of the items, all different.
        symbols: (B, S) of the items.
        queries: (B, N) addresses of items, all different.
        answers: (B, N) the symbols of these items.
    """

    addresses: Int[Tensor, "B S"]
    symbols: Int[Tensor, "B S"]
    queries: Int[Tensor, "B N"]
    answers: Int[Tensor, "B N"]

    def to(self, device: torch.device | str) -> "LookupTables":
        """Return the tables on a device."""
        return LookupTables(*(x.to(device) for x in self))


def draw_tables(count: int, rng: torch.Generator) -> LookupTables:
    """Return random tables and queries, on the generator's device.

    The addresses of a query are all different.
    """
    by_rng: dict[str, Any] = {"generator": rng, "device": rng.device}
    order = torch.rand(count, ADDRESSES, **by_rng).argsort(dim=1)
    addresses = order[:, :ITEMS]
    symbols = torch.randint(SYMBOLS, (count, ITEMS), **by_rng)
    shuffled = torch.rand(count, ITEMS, **by_rng).argsort(dim=1)
    items = shuffled[:, :QUERIES]
    return LookupTables(
        addresses,
        symbols,
        addresses.gather(1, items),
        symbols.gather(1, items),
    )


class AssociativeRecallModel(nn.Module):
    """Embeddings, one multi-head attention, one output layer.

    Args:
        heads: H; the number of parameters does not depend on it.
        width: C.
        dropout: dropout probability of the attention weights in training.
    """

    def __init__(self, heads: int, width: int = 64, dropout: float = 0.0):
        super().__init__()
        self.address = nn.Embedding(ADDRESSES, width)
        self.symbol = nn.Embedding(SYMBOLS, width)
        self.query_embeddings = nn.ModuleList(
            nn.Embedding(ADDRESSES, width) for _ in range(QUERIES)
        )
        self.attention = MultiHeadAttention(width, heads, dropout=dropout)
        self.answer = nn.Linear(width, QUERIES * SYMBOLS)

    def forward(
        self, tables: LookupTables
    ) -> tuple[Float[Tensor, "B N V"], Float[Tensor, "B H S"]]:
        """Return logits of each answer, and each head's weights."""
        items = self.address(tables.addresses) + self.symbol(tables.symbols)
        parts = zip(self.query_embeddings, tables.queries.unbind(1), strict=True)
        question = sum(embed(queries) for embed, queries in parts)[:, None]
        context, weights = self.attention(question, items, need_weights=True)
        logits = self.answer(context[:, 0]).unflatten(1, (QUERIES, SYMBOLS))
        return logits, weights[:, :, 0]


def compute_lookup_loss(
    logits: Float[Tensor, "B N V"], answers: Int[Tensor, "B N"]
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of an answer, in nats."""
    return F.cross_entropy(logits.flatten(0, 1), answers.flatten())
