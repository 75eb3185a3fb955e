"""Graphs drawn so that it is known which neighbors a node should attend to.

In a lookup, a query has an attribute, a key an attribute and a value, and all
keys are neighbors of all queries. The query's class is the value of the key
with the same attribute.

Source: the lookup is DictionaryLookup of Brody, Alon and Yahav (2022), section
    4.1, https://arxiv.org/abs/2105.14491. Departures: one-hot features instead
    of embeddings, and values that can be equal. If all are different, it is
    enough to attend to every key but the right one.
Axes: N nodes, E edges, T nodes to classify, I width of the features
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor


class GraphTask(NamedTuple):
    """A graph, nodes to classify, and the neighbors that tell their class.

    The nodes to classify are the first T.

    Attributes:
        features: (N, I).
        edges: (2, E), from sources to the nodes to classify.
        labels: (T,) the class of each node to classify.
        right: (E,) whether the source of an edge tells the target's class.
    """

    features: Float[Tensor, "N I"]
    edges: Int[Tensor, "2 E"]
    labels: Int[Tensor, " T"]
    right: Bool[Tensor, " E"]

    def to(self, device: torch.device | str) -> "GraphTask":
        """Return the graph on a device."""
        return GraphTask(*(x.to(device) for x in self))


def draw_lookup(graphs: int, size: int, rng: torch.Generator) -> GraphTask:
    """Return lookups of `size` queries in `size` keys, not connected.

    Args:
        graphs: how many lookups.
        size: how many queries and keys one has; T is graphs · size.
        rng: draws the attributes, all different in a lookup, and the values;
            the graph is on its device.
    """
    by_rng: dict[str, Any] = {"generator": rng, "device": rng.device}
    asked, held = (torch.rand(graphs, size, **by_rng).argsort(dim=1) for _ in range(2))
    values = torch.randint(size, (graphs, size), **by_rng)
    same = asked[:, :, None] == held[:, None, :]  # (graphs, queries, keys)
    labels = (same * values[:, None, :]).sum(dim=-1)
    attributes = F.one_hot(torch.cat([asked.flatten(), held.flatten()]), size)
    shown = F.one_hot(values.flatten(), size)
    shown = torch.cat([torch.zeros_like(shown), shown])
    queries = torch.arange(graphs * size, device=rng.device)
    targets = queries.view(graphs, size, 1).expand(same.shape)
    sources = queries.view(graphs, 1, size).expand(same.shape) + len(queries)
    return GraphTask(
        torch.cat([attributes, shown], dim=1).float(),
        torch.stack([sources.flatten(), targets.flatten()]),
        labels.flatten(),
        same.flatten(),
    )
