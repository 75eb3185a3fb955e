"""A model of attention alone, three embeddings and an output layer.

Axes: B batch, T queries, S keys, D width of query and key, E value width,
    V symbols
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.scaled_dot_product import attention_weights


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

    Args:
        queries: number of query symbols.
        keys: number of key symbols.
        values: number of value symbols, which are also the targets.
        width: D.
        value: E.
        scale: of the products; 1/√D unless given.
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
    """Return a copying task: position t outputs symbol t of a random sequence.

    The batch is on the generator's device. Drawn on the CPU and then moved, it
    is the same for one seed on every device.
    """
    positions = torch.arange(length, device=rng.device).expand(batch, length)
    symbols_drawn = torch.randint(
        symbols, (batch, length), generator=rng, device=rng.device
    )
    return LookupBatch(positions, positions, symbols_drawn, symbols_drawn)


def draw_lookup(
    batch: int, length: int, symbols: int, queries: int, rng: torch.Generator
) -> LookupBatch:
    """Return a lookup task: the partner of a name in a list of random pairs.

    Args:
        batch: number of lists.
        length: number of pairs in a list, each name once.
        symbols: number of names, and of partners.
        queries: number of queries for each list.
        rng: the generator; the task is on its device.

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
