"""One layer of self-attention that must find a related name in its sequence.

A sequence holds all names in random order, each with a random color. At each
name the model outputs the color of another name, which depends on the first by
a fixed relation, such as its successor in a circle.

Axes: B batch, T positions, one for each name, C width, V colors
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.self_attention import self_attention

Projected = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Relation = Callable[[Tensor, int], Tensor]


class RelationBatch(NamedTuple):
    """Names, their colors, and the color of each name's related name."""

    names: Int[Tensor, "B T"]
    colors: Int[Tensor, "B T"]
    answer: Int[Tensor, "B T"]

    def to(self, device: torch.device | str) -> "RelationBatch":
        """Return the batch on a device."""
        return RelationBatch(*(x.to(device) for x in self))


def share_query_and_key(
    x: Tensor, W_query: Tensor, W_key: Tensor, W_value: Tensor
) -> Tensor:
    """Return self-attention with W_query in the place of W_key."""
    return self_attention(x, W_query, W_query, W_value)


def flip_half_of_key(
    x: Tensor, W_query: Tensor, W_key: Tensor, W_value: Tensor
) -> Tensor:
    """Return self-attention whose keys are queries, half of them negated.

    The scores are symmetric, as with equal matrices, but a position's score
    with itself may be small or negative.
    """
    signs = torch.ones_like(W_query[:, :1])
    signs[::2] = -1
    return self_attention(x, W_query, signs * W_query, W_value)


# Versions of self-attention, by their projections.
PROJECTIONS: dict[str, Projected] = {
    "three projections": self_attention,
    "W_q = W_k": share_query_and_key,
    "W_k = W_q, half negated": flip_half_of_key,
}


def find_successor(names: Int[Tensor, "..."], count: int) -> Int[Tensor, "..."]:
    """Return the next name in a circle of so many names."""
    return (names + 1) % count


def find_partner(names: Int[Tensor, "..."], count: int) -> Int[Tensor, "..."]:
    """Return the other name of each pair (0, 1), (2, 3), ...

    Raises:
        ValueError: if one name has no partner.
    """
    if count % 2:
        raise ValueError(f"{count} names do not form pairs: the count is odd")
    return names ^ 1


# Relations between names. A successor's successor is another name, a
# partner's partner is the name itself.
RELATIONS: dict[str, Relation] = {
    "successor": find_successor,
    "partner": find_partner,
}


def draw_relation(
    batch: int,
    names: int,
    colors: int,
    relation: Relation,
    rng: torch.Generator,
) -> RelationBatch:
    """Return sequences of all names in random order, with random colors.

    Args:
        batch: number of sequences.
        names: number of names, which is also the length of a sequence.
        colors: number of colors.
        relation: returns the related name of each name.
        rng: the generator; the batch is on its device.
    """
    noise = torch.rand(batch, names, generator=rng, device=rng.device)
    order = noise.argsort(dim=-1)
    shown = torch.randint(colors, (batch, names), generator=rng, device=rng.device)
    position = order.argsort(dim=-1)  # of each name
    related = position.gather(1, relation(order, names))
    return RelationBatch(order, shown, shown.gather(1, related))


class RelationModel(nn.Module):
    """Embeddings of names and colors, one layer of attention, a linear layer.

    Args:
        names: number of names.
        colors: number of colors.
        width: C.
        layer: self-attention, with or without some of its projections.
    """

    def __init__(
        self,
        names: int,
        colors: int,
        width: int,
        layer: Projected = self_attention,
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
