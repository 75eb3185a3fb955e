"""Tasks: the data of a run as ids, and how its outputs are scored.

Axes: B batch, S source symbols, T target symbols
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module

import torch
from torch import nn

from attnbook.data import Pair, Splits
from attnbook.data.vocabulary import Vocabulary, pad_sequences
from attnbook.models.devices import find_device
from attnbook.training import metrics
from attnbook.training.batching import make_batch
from attnbook.training.search import SearchResult, greedy_search

TASK_NAMES = ("cmudict", "libreoffice", "grammar")


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
        """Return the vocabulary of the source side."""
        return Vocabulary.of(p.source for p in self.splits.train)

    @cached_property
    def targets(self) -> Vocabulary:
        """Return the vocabulary of the target side."""
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
        found: list = [None] * len(pairs)
        for start in range(0, len(order), 256):
            chosen = order[start : start + 256]
            read = pad_sequences([self.encode_source(pairs[i].source) for i in chosen])
            source, lengths = (x.to(find_device(model)) for x in read)
            results = greedy_search(model, source, lengths, limit)
            for i, one in zip(chosen, results, strict=True):
                found[i] = one
        return found

    @torch.no_grad()
    def attention_weights(self, model: nn.Module, pairs: Sequence[Pair]) -> list:
        """Return each pair's weights (T + 1, S), with teacher forcing.

        They are on the CPU.
        """
        rows = []
        for start in range(0, len(pairs), 256):
            some = pairs[start : start + 256]
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
    if name not in TASK_NAMES:
        raise ValueError(f"no task is named {name!r}; there are {[*TASK_NAMES]}")
    return Task(import_module(f"attnbook.data.{name}").load(), backwards)


def count_errors_by_length(
    outputs: Sequence[Sequence[str]], pairs: Sequence[Pair]
) -> dict[str, dict[str, int]]:
    """Return, for each source length, counts that error rates are made of.

    The counts: `count` sequences, `wrong` of them, `edits` to their nearest
    references, `symbols` in those.
    """
    table: dict[int, list[tuple]] = {}
    for output, p in zip(outputs, pairs, strict=True):
        distance, minus = min(
            (metrics.edit_distance(output, r), -len(r)) for r in p.references
        )
        row = (1, int(distance > 0), distance, -minus)
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
