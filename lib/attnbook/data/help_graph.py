"""The pages of LibreOffice's help as a graph: words, links and a class.

A node is a page. Its features are the words in it, its class is the folder that
it lies in (one folder for each application, such as "scalc" for Calc, and one
for help that all share), and an edge leads from a page to a page that it links
to.

Source: Debian package libreoffice-help-en-us 7.4.7, see
    derive/help_graph.py and files/libreoffice/README.md
Axes: N pages, E links, I words
"""

from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnbook.data import read_file, read_lines


@dataclass(frozen=True)
class HelpGraph:
    """The pages, their words and their links.

    Attributes:
        pages: the name of each page, such as "scalc/guide/fraction_enter.html".
        words: the words that are counted.
        features: (N, I), 1 where a page contains a word, and 0.
        links: (2, E), the page that contains a link, and its target.
        classes: the names of the folders.
        labels: (N,) the number of each page's class.
    """

    pages: tuple[str, ...]
    words: tuple[str, ...]
    features: Float[Tensor, "N I"]
    links: Int[Tensor, "2 E"]
    classes: tuple[str, ...]
    labels: Int[Tensor, " N"]


@cache
def load() -> HelpGraph:
    """Return the graph.

    Raises:
        ValueError: if a file is missing, or is another one.
    """
    words = read_file("libreoffice/graph_words.txt").decode().splitlines()
    rows = [x.split("\t") for x in read_lines("libreoffice/graph.tsv.bz2")]
    pages = tuple(name for name, _, _ in rows)
    folders = [name.partition("/")[0] for name in pages]
    classes = tuple(sorted(set(folders)))
    features = torch.zeros(len(rows), len(words))
    for row, (_, _, found) in zip(features, rows, strict=True):
        row[[int(x) for x in found.split()]] = 1.0
    links = [
        (page, int(x))
        for page, (_, targets, _) in enumerate(rows)
        for x in targets.split()
    ]
    labels = torch.tensor([classes.index(x) for x in folders])
    return HelpGraph(
        pages,
        tuple(words),
        features,
        torch.tensor(links).T.contiguous(),
        classes,
        labels,
    )


def draw_labeled(
    labels: Int[Tensor, " N"], count: int, rng: torch.Generator
) -> Int[Tensor, " _"]:
    """Return `count` random nodes of each class: those to train on.

    Args:
        labels: the class of each node.
        count: how many of each class.
        rng: draws them.

    Raises:
        ValueError: if a class has fewer nodes.
    """
    smallest = int(labels.bincount().min())
    if smallest < count:
        raise ValueError(f"the smallest class has {smallest} nodes, fewer than {count}")
    order = torch.randperm(len(labels), generator=rng, device=rng.device)
    order = order.to(labels.device)
    return torch.cat(
        [order[labels[order] == k][:count] for k in range(int(labels.max()) + 1)]
    )
