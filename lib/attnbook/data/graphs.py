"""A graph whose useful neighbors are known, and that of LibreOffice's help.

`draw_lookup`: a query has an attribute, a key an attribute and a value, and all
keys are neighbors of all queries. The query's class is the value of the key
with the same attribute.

`load_help_graph`: a node is a page. Its features are the words in it, its class
is the folder that it lies in (one for each application, such as "scalc" for Calc,
and one for help that all share), and an edge leads from a page to a page that it
links to.

Source: the lookup is DictionaryLookup of Brody, Alon and Yahav (2022), section
    4.1, https://arxiv.org/abs/2105.14491. Departures: one-hot features instead
    of embeddings, and values that can be equal. If all are different, it is
    enough to attend to every key but the right one. The pages are those of the
    Debian package libreoffice-help-en-us 7.4.7, see
    files/libreoffice/README.md.
Axes: N nodes, E edges, T nodes to classify, I width of the features or words
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnbook.data import read_file, read_lines


class GraphTask(NamedTuple):
    """A graph; the T nodes to classify come first."""

    features: Float[Tensor, "N I"]
    edges: Int[Tensor, "2 E"]  # from sources to the nodes to classify
    labels: Int[Tensor, " T"]  # the class of each node to classify
    right: Bool[Tensor, " E"]  # whether an edge's source tells the target's class


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


@dataclass(frozen=True)
class HelpGraph:
    """The pages, their words and their links."""

    pages: tuple[str, ...]  # names such as "scalc/guide/fraction_enter.html"
    words: tuple[str, ...]  # those that are counted
    features: Float[Tensor, "N I"]  # 1 where a page contains a word, and 0
    links: Int[Tensor, "2 E"]  # the page that contains a link, and its target
    classes: tuple[str, ...]  # the names of the folders
    labels: Int[Tensor, " N"]  # the number of each page's class


@cache
def load_help_graph() -> HelpGraph:
    """Return the graph; ValueError if a file is missing, or is another one."""
    words = read_file("libreoffice/graph_words.txt").decode().splitlines()
    rows = [x.split("\t") for x in read_lines("libreoffice/graph.tsv.bz2")]
    pages = tuple(name for name, _, _ in rows)
    folders = [name.partition("/")[0] for name in pages]
    classes = tuple(sorted(set(folders)))
    features = torch.zeros(len(rows), len(words))
    for row, (_, _, found) in zip(features, rows, strict=True):
        row[[int(x) for x in found.split()]] = 1.0
    pairs = [
        (page, int(x))
        for page, (_, targets, _) in enumerate(rows)
        for x in targets.split()
    ]
    links = torch.tensor(pairs).T.contiguous()
    labels = torch.tensor([classes.index(x) for x in folders])
    return HelpGraph(pages, tuple(words), features, links, classes, labels)


def draw_labeled(
    labels: Int[Tensor, " N"], count: int, rng: torch.Generator
) -> Int[Tensor, " _"]:
    """Return `count` random nodes of each class: those to train on."""
    order = torch.randperm(len(labels), generator=rng, device=rng.device)
    order = order.to(labels.device)
    return torch.cat(
        [order[labels[order] == k][:count] for k in range(int(labels.max()) + 1)]
    )
