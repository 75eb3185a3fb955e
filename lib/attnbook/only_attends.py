"""A model that does nothing but attend: three tables and a readout.

Chapter: chapters/04_scaled_dot_product
Source: none (own work)
Axes: B batch, T queries, S keys, D width of query and key, E value width,
    V symbols
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.scaled_dot_product import attention_weights


class Task(NamedTuple):
    """What is asked, what stands on the keys, what they hold; the answer."""

    asked: Int[Tensor, "B T"]
    keys: Int[Tensor, "B S"]
    values: Int[Tensor, "B S"]
    answer: Int[Tensor, "B T"]


class OnlyAttends(nn.Module):
    """Query, key and value are rows of tables; the answer is a linear layer.

    Args:
        asked: how many things can be asked.
        keys: how many can stand on a key.
        values: how many can be a value, and an answer.
        width: D.
        value: E.
        scale: of the products; 1/√D unless given.
    """

    def __init__(
        self,
        asked: int,
        keys: int,
        values: int,
        width: int,
        value: int,
        scale: float | None = None,
    ):
        super().__init__()
        self.query = nn.Embedding(asked, width)
        self.key = nn.Embedding(keys, width)
        self.value = nn.Embedding(values, value)
        self.readout = nn.Linear(value, values)
        self.scale = scale

    def forward(
        self,
        asked: Int[Tensor, "B T"],
        keys: Int[Tensor, "B S"],
        values: Int[Tensor, "B S"],
    ) -> tuple[Float[Tensor, "B T V"], Float[Tensor, "B T S"]]:
        """Return the logits of the answers, and where the model looked."""
        weights = attention_weights(
            self.query(asked), self.key(keys), scale=self.scale
        )
        return self.readout(weights @ self.value(values)), weights


def copying(
    batch: int, length: int, symbols: int, rng: torch.Generator
) -> Task:
    """Return a task: say symbol t of a random text, for every place t."""
    places = torch.arange(length).expand(batch, length)
    text = torch.randint(symbols, (batch, length), generator=rng)
    return Task(places, places, text, text)


def looking_up(
    batch: int, length: int, symbols: int, asked: int, rng: torch.Generator
) -> Task:
    """Return a task: say the partner of a name, from a list of random pairs.

    Args:
        batch: lists.
        length: pairs in a list, each name once.
        symbols: names that exist, and partners that exist.
        asked: questions a list.
        rng: where chance comes from.

    Raises:
        ValueError: if a list is longer than there are names.
    """
    if length > symbols:
        raise ValueError(f"{length} pairs need as many names, not {symbols}")
    noise = torch.rand(batch, symbols, generator=rng)
    names = noise.argsort(dim=-1)[:, :length]
    partners = torch.randint(symbols, (batch, length), generator=rng)
    chosen = torch.randint(length, (batch, asked), generator=rng)
    name, partner = (x.gather(1, chosen) for x in (names, partners))
    return Task(name, names, partners, partner)
