"""A task that needs several relations at once, and a model of one attention.

A table of items, each with an address and a symbol; a question names four
addresses, in order; the answer is their four symbols, in that order. One
average of the table cannot say which symbol belongs to which address.

Chapter: chapters/06_multi_head
Source: none; the widths are those of multi-head attention in Vaswani et al.
    (2017), section 3.2.2, https://arxiv.org/abs/1706.03762
Axes: B batch, S items in the table, N addresses asked, V symbols, H heads, C
    model width
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.multi_head import MultiHeadAttention

ADDRESSES, SYMBOLS, ASKED, ITEMS = 32, 16, 4, 24


class Tables(NamedTuple):
    """A batch of tables with their questions.

    Attributes:
        addresses: (B, S) of the items, all different.
        symbols: (B, S) of the items.
        asked: (B, N) addresses, each of some item.
        answers: (B, N) the symbols of these items.
    """

    addresses: Int[Tensor, "B S"]
    symbols: Int[Tensor, "B S"]
    asked: Int[Tensor, "B N"]
    answers: Int[Tensor, "B N"]


def draw(count: int, rng: torch.Generator) -> Tables:
    """Return random tables and questions; an address may be asked twice."""
    order = torch.rand(count, ADDRESSES, generator=rng).argsort(dim=1)
    addresses = order[:, :ITEMS]
    symbols = torch.randint(SYMBOLS, (count, ITEMS), generator=rng)
    places = torch.randint(ITEMS, (count, ASKED), generator=rng)
    return Tables(
        addresses,
        symbols,
        addresses.gather(1, places),
        symbols.gather(1, places),
    )


class Lookups(nn.Module):
    """Embeddings, one multi-head attention, one layer that answers.

    Args:
        heads: H; the number of parameters does not depend on it.
        width: C.
        dropout: share of the attention weights dropped in training.
    """

    def __init__(self, heads: int, width: int = 64, dropout: float = 0.0):
        super().__init__()
        self.address = nn.Embedding(ADDRESSES, width)
        self.symbol = nn.Embedding(SYMBOLS, width)
        self.question = nn.ModuleList(
            nn.Embedding(ADDRESSES, width) for _ in range(ASKED)
        )
        self.attention = MultiHeadAttention(width, heads, dropout=dropout)
        self.answer = nn.Linear(width, ASKED * SYMBOLS)

    def forward(
        self, tables: Tables
    ) -> tuple[Float[Tensor, "B N V"], Float[Tensor, "B H S"]]:
        """Return logits of each answer, and each head's weights."""
        items = self.address(tables.addresses) + self.symbol(tables.symbols)
        parts = zip(self.question, tables.asked.unbind(1), strict=True)
        question = sum(embed(asked) for embed, asked in parts)[:, None]
        looked, weights = self.attention(question, items, need_weights=True)
        logits = self.answer(looked[:, 0]).unflatten(1, (ASKED, SYMBOLS))
        return logits, weights[:, :, 0]


def loss_of(
    logits: Float[Tensor, "B N V"], answers: Int[Tensor, "B N"]
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of an answer, in nats."""
    return F.cross_entropy(logits.flatten(0, 1), answers.flatten())


def train(
    model: Lookups,
    steps: int,
    seed: int,
    rate: float = 1e-2,
    size: int = 128,
    extra=None,
    target=lambda tables: tables.answers,
) -> None:
    """Train on fresh tables; the rate falls along a straight line to 0.

    Args:
        model: left in evaluation mode.
        steps: of gradient descent.
        seed: of the tables and of dropout.
        rate: the learning rate at the start.
        size: tables in a batch.
        extra: a function of the weights (B, H, S), added to the loss.
        target: which answers are asked for, a function of the tables.
    """
    rng = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model.train()
        for step in range(steps):
            optimiser.param_groups[0]["lr"] = rate * (1 - step / steps)
            tables = draw(size, rng)
            logits, weights = model(tables)
            loss = loss_of(logits, target(tables))
            if extra is not None:
                loss = loss + extra(weights)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    model.eval()


@torch.no_grad()
def error(
    model: Lookups, count: int = 2000, target=lambda tables: tables.answers
) -> float:
    """Return the share of wrong answers on tables never trained on."""
    tables = draw(count, torch.Generator().manual_seed(10**6))
    logits, _ = model(tables)
    return float((logits.argmax(-1) != target(tables)).double().mean())
