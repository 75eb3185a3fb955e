"""Small models with one attention, and the tasks that they learn: lookups.

- `LookupModel`: attention between symbols, each with its embedding.
- `RelationModel`: a sequence holds all names in random order, each with a random
  color. At each name the model outputs the color of another name, which depends on
  the first by a fixed relation, such as its successor in a circle.
- `AssociativeRecallModel`: a table of items, each with an address and a symbol; a query
  consists of four different addresses, and the target is their four symbols in that
  order. One average over the table cannot encode which symbol belongs to which address.

Axes: B batch, T queries or positions, S keys or items of a table, N addresses in a
    query, H heads, C model width, D width of query and key, E value width, V symbols or
    colors
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.attention.scaled_dot_product import attention_weights
from attnbook.attention.self_attention import self_attention


class LookupBatch(NamedTuple):
    """A batch of lookups: query, key and value symbols, and the targets."""

    queries: Int[Tensor, "B T"]
    keys: Int[Tensor, "B S"]
    values: Int[Tensor, "B S"]
    answer: Int[Tensor, "B T"]

    def to(self, device: torch.device | str) -> "LookupBatch":
        """Return the batch on a device."""
        return LookupBatch(*(x.to(device) for x in self))


class LookupModel(nn.Module):
    """Embeddings of queries, keys and values, attention, and a linear layer.

    `queries`, `keys` and `values` are the numbers of symbols, those of the values also
    the targets; `width` is D, `value` E; the scale is 1/√D unless given.
    """

    def __init__(
        self,
        queries: int,
        keys: int,
        values: int,
        width: int,
        value: int,
        scale: float | None = None,
    ):
        super().__init__()
        self.query = nn.Embedding(queries, width)
        self.key = nn.Embedding(keys, width)
        self.value = nn.Embedding(values, value)
        self.readout = nn.Linear(value, values)
        self.scale = scale

    def forward(
        self,
        queries: Int[Tensor, "B T"],
        keys: Int[Tensor, "B S"],
        values: Int[Tensor, "B S"],
    ) -> tuple[Float[Tensor, "B T V"], Float[Tensor, "B T S"]]:
        """Return the logits of the answers, and the attention weights."""
        weights = attention_weights(
            self.query(queries), self.key(keys), scale=self.scale
        )
        return self.readout(weights @ self.value(values)), weights


def draw_copying(
    batch: int, length: int, symbols: int, rng: torch.Generator
) -> LookupBatch:
    """Return a copying task: position t outputs symbol t of a random sequence."""
    positions = torch.arange(length, device=rng.device).expand(batch, length)
    symbols_drawn = torch.randint(
        symbols, (batch, length), generator=rng, device=rng.device
    )
    return LookupBatch(positions, positions, symbols_drawn, symbols_drawn)


def draw_lookup(
    batch: int, length: int, symbols: int, queries: int, rng: torch.Generator
) -> LookupBatch:
    """Return a lookup task: the partner of a name in a list of random pairs.

    A list has `length` pairs, each of the `symbols` names at most once, and `queries`
    queries; the task is on the generator's device.

    Raises:
        ValueError: if a list is longer than there are names.
    """
    if length > symbols:
        raise ValueError(f"{length} pairs need as many names, not {symbols}")
    by_rng: dict[str, Any] = {"generator": rng, "device": rng.device}
    noise = torch.rand(batch, symbols, **by_rng)
    names = noise.argsort(dim=-1)[:, :length]
    partners = torch.randint(symbols, (batch, length), **by_rng)
    chosen = torch.randint(length, (batch, queries), **by_rng)
    name, partner = (x.gather(1, chosen) for x in (names, partners))
    return LookupBatch(name, names, partners, partner)


def make_lstm_with_forget_bias(width: int, bias: float) -> nn.LSTM:
    """Return an LSTM to whose forget gate's bias a number is added.

    PyTorch stacks the gates as input, forget, cell and output gate.
    """
    network = nn.LSTM(width, width, batch_first=True)
    with torch.no_grad():
        network.get_parameter("bias_hh_l0")[width : 2 * width] += bias
    return network


def compute_gradient_norms_at_ends(
    model: nn.Module, x: Float[Tensor, "B T C"], upstream: Float[Tensor, "B C"]
) -> tuple[float, float]:
    """Return the last output's mean gradient norms on the first and last position."""
    x = x.detach().requires_grad_()
    last = model(x)[0][:, -1]
    (gradient,) = torch.autograd.grad(last, x, upstream)
    return compute_mean_norm(gradient[:, 0]), compute_mean_norm(gradient[:, -1])


def compute_mean_norm(vectors: Float[Tensor, "B C"]) -> float:
    """Return the mean norm; numbers whose squares underflow are kept."""
    largest = vectors.abs().amax()
    if not largest > 0:
        return float(largest)
    return float(largest * (vectors / largest).norm(dim=-1).mean())


Projected = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Relation = Callable[[Tensor, int], Tensor]


class RelationBatch(NamedTuple):
    """Names, their colors, and the color of each name's related name."""

    names: Int[Tensor, "B T"]
    colors: Int[Tensor, "B T"]
    answer: Int[Tensor, "B T"]


def find_successor(names: Int[Tensor, "..."], count: int) -> Int[Tensor, "..."]:
    """Return the next name in a circle of so many names."""
    return (names + 1) % count


def find_partner(names: Int[Tensor, "..."], count: int) -> Int[Tensor, "..."]:
    """Return the other name of each pair (0, 1), (2, 3), ...: an even count."""
    if count % 2:
        raise ValueError(f"{count} names do not form pairs: the count is odd")
    return names ^ 1


# Relations between names. A successor's successor is another name, a
# partner's partner is the name itself.
RELATIONS: dict[str, Relation] = {"successor": find_successor, "partner": find_partner}


def draw_relation(
    batch: int, names: int, colors: int, relation: Relation, rng: torch.Generator
) -> RelationBatch:
    """Return sequences of all names in random order, with random colors.

    `relation` returns the related name of each name; the batch is on the generator's
    device.
    """
    noise = torch.rand(batch, names, generator=rng, device=rng.device)
    order = noise.argsort(dim=-1)
    shown = torch.randint(colors, (batch, names), generator=rng, device=rng.device)
    position = order.argsort(dim=-1)  # of each name
    related = position.gather(1, relation(order, names))
    return RelationBatch(order, shown, shown.gather(1, related))


class RelationModel(nn.Module):
    """Embeddings of names and colors, one layer of attention, a linear layer.

    `layer` is self-attention, with or without some of its projections.
    """

    def __init__(
        self, names: int, colors: int, width: int, layer: Projected = self_attention
    ):
        super().__init__()
        self.name = nn.Embedding(names, width)
        self.color = nn.Embedding(colors, width)
        self.readout = nn.Linear(2 * width, colors)
        self.W = nn.Parameter(torch.randn(3, width, width) / width**0.5)
        self.layer = layer

    def forward(
        self, names: Int[Tensor, "B T"], colors: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T V"]:
        """Return the logits of the related name's color, at each name."""
        x = self.name(names) + self.color(colors)
        y = self.layer(x, *self.W)
        return self.readout(torch.cat([x, y], dim=-1))


ADDRESSES, SYMBOLS, QUERIES, ITEMS = 32, 16, 4, 24


class LookupTables(NamedTuple):
    """Items, each with an address of its own and a symbol, and different queries."""

    addresses: Int[Tensor, "B S"]
    symbols: Int[Tensor, "B S"]
    queries: Int[Tensor, "B N"]
    answers: Int[Tensor, "B N"]

    def to(self, device: torch.device | str) -> "LookupTables":
        """Return the tables on a device."""
        return LookupTables(*(x.to(device) for x in self))


def draw_tables(count: int, rng: torch.Generator) -> LookupTables:
    """Return random tables and queries, on the generator's device."""
    by_rng: dict[str, Any] = {"generator": rng, "device": rng.device}
    order = torch.rand(count, ADDRESSES, **by_rng).argsort(dim=1)
    addresses = order[:, :ITEMS]
    symbols = torch.randint(SYMBOLS, (count, ITEMS), **by_rng)
    shuffled = torch.rand(count, ITEMS, **by_rng).argsort(dim=1)
    items = shuffled[:, :QUERIES]
    return LookupTables(
        addresses, symbols, addresses.gather(1, items), symbols.gather(1, items)
    )


class AssociativeRecallModel(nn.Module):
    """Embeddings, one multi-head attention, one output layer.

    The number of parameters does not depend on the number of heads.
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
