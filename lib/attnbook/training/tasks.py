"""Tasks: the data of a run as ids, and how a model's outputs are scored.

Axes: B batch, S source symbols, T target symbols
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import nn

from attnbook.data import Pair, Splits, cmudict, grammar, libreoffice
from attnbook.data.vocabulary import Vocabulary, pad_sequences
from attnbook.decoding.generation import SearchResult, greedy_search
from attnbook.models.devices import find_device
from attnbook.training.loop import make_batch
from attnbook.training.metrics import extract_links, match_nearest

TASKS = {"cmudict": cmudict, "libreoffice": libreoffice, "grammar": grammar}
CHUNK = 256  # pairs that a model reads at a time


@dataclass(frozen=True)
class Task:
    """Pairs and the vocabularies of both sides, made from the training pairs.

    Attributes:
        splits: the pairs.
        backwards: whether the source is read in reverse (Sutskever's trick).
    """

    splits: Splits
    backwards: bool = False

    @cached_property
    def sources(self) -> Vocabulary:
        """The vocabulary of the source side."""
        return Vocabulary.of(p.source for p in self.splits.train)

    @cached_property
    def targets(self) -> Vocabulary:
        """The vocabulary of the target side."""
        return Vocabulary.of(p.target for p in self.splits.train)

    def encode_source(self, source: Sequence[str]) -> list[int]:
        """Return the ids that a model reads for these source symbols."""
        numbers = self.sources.encode_known(source)
        return numbers[::-1] if self.backwards else numbers

    def encode(self, pairs: Iterable[Pair]) -> list[tuple[list, list]]:
        """Return pairs of ids."""
        return [
            (self.encode_source(p.source), self.targets.encode_known(p.target))
            for p in pairs
        ]

    def generate(
        self, model: nn.Module, pairs: Sequence[Pair], limit: int = 100
    ) -> list[SearchResult]:
        """Return the model's greedy output for each source, in order."""
        order = sorted(range(len(pairs)), key=lambda i: len(pairs[i].source))
        found: dict[int, SearchResult] = {}
        for start in range(0, len(order), CHUNK):
            chosen = order[start : start + CHUNK]
            read = pad_sequences([self.encode_source(pairs[i].source) for i in chosen])
            source, lengths = (x.to(find_device(model)) for x in read)
            results = greedy_search(model, source, lengths, limit)
            found |= zip(chosen, results, strict=True)
        return [found[i] for i in range(len(pairs))]

    @torch.no_grad()
    def attention_weights(self, model: nn.Module, pairs: Sequence[Pair]) -> list:
        """Return each pair's weights (T + 1, S), with teacher forcing, on the CPU."""
        rows = []
        for start in range(0, len(pairs), CHUNK):
            some = pairs[start : start + CHUNK]
            made = make_batch(self.encode(some)).to(find_device(model))
            output = model(made.source, made.lengths, made.previous)
            for weights, p in zip(output.weights.cpu(), some, strict=True):
                rows.append(weights[: len(p.target) + 1, : len(p.source)])
        return rows


@lru_cache
def load_task(name: str, backwards: bool = False) -> Task:
    """Return a task by name: cmudict, libreoffice or grammar.

    Raises:
        ValueError: if there is no such task.
    """
    if name not in TASKS:
        raise ValueError(f"no task is named {name!r}; there are {[*TASKS]}")
    return Task(TASKS[name].load(), backwards)


def count_errors_by_length(
    outputs: Sequence[Sequence[str]], pairs: Sequence[Pair]
) -> dict[str, dict[str, int]]:
    """Return, for each source length, counts that error rates are made of.

    The counts: `count` sequences, `wrong` of them, `edits` to their nearest
    references, `symbols` in those.
    """
    table: dict[int, list[tuple]] = {}
    for output, p in zip(outputs, pairs, strict=True):
        edits, symbols = match_nearest(output, p.references)
        row = (1, int(edits > 0), edits, symbols)
        table.setdefault(len(p.source), []).append(row)
    keys = ("count", "wrong", "edits", "symbols")
    return {
        str(n): dict(zip(keys, map(sum, zip(*rows, strict=True)), strict=True))
        for n, rows in sorted(table.items())
    }


def compute_error_rate(
    table: dict, shortest: int = 0, longest: int = 10_000, of: str = "wrong"
) -> float:
    """Return the error rate of the source lengths from shortest to longest.

    Args:
        table: what `count_errors_by_length` returned.
        shortest: the least source length counted.
        longest: the greatest source length counted.
        of: "wrong" for the share of wrong sequences, "edits" for edits per
            reference symbol.

    Raises:
        ValueError: if no sequence has such a length.
    """
    rows = [v for n, v in table.items() if shortest <= int(n) <= longest]
    if not rows:
        raise ValueError(
            f"no length lies between {shortest} and {longest}; there are {[*table]}"
        )
    total = "count" if of == "wrong" else "symbols"
    return sum(r[of] for r in rows) / sum(r[total] for r in rows)


def predict_links(data: Task, model: nn.Module, pairs: Sequence) -> list[set]:
    """Return the links of each aligned pair, from its attention weights.

    Target words without a known link make none.
    """
    links = []
    for weights, p in zip(data.attention_weights(model, pairs), pairs, strict=True):
        linked = {t for t, _ in p.possible}
        every = extract_links(weights, len(p.target), len(p.source))
        links.append({(t, s) for t, s in every if t in linked})
    return links
