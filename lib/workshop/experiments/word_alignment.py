"""Which words a trained decoder misaligns, where, and what that costs.

Source: alignment error after Och and Ney (2003), section 5.1,
    https://aclanthology.org/J03-1002; the stratified ratio is that of Mantel
    and Haenszel (1959), https://doi.org/10.1093/jnci/22.4.719
Axes: T target words, S source words
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import nn

from attnbook.data import grammar
from attnbook.data.grammar import Aligned
from attnbook.training.batching import make_batch
from attnbook.training.tasks import Task
from attnbook.training.trained import load_trained
from workshop.experiments.record import recorded
from workshop.experiments.registry import experiment

SEEDS = (0, 1, 2)
DRAWS = 400  # of the bootstrap over sentences
ARTICLES = {"le", "la", "l'", "les", "un", "une", "de"}
PRONOUNS = {"me", "m'", "te", "t'", "nous", "le", "la", "l'", "les"}
OBJECTS = {"me", "you", "him", "her", "it", "us", "them"}


@dataclass(frozen=True)
class Row:
    """One French word of a test sentence.

    Attributes:
        sentence: the number of the sentence.
        word: the French word.
        kind: its word type.
        position: its position in the French sentence, from 0.
        off: source words between the largest weight and the nearest possible
            link; 0 if the largest weight is on a possible link.
        predicted: whether the model predicts it, given the true words before.
        ahead: whether the largest weight is on a word that is surely linked
            to one of the next two French words, as an article's noun is.
    """

    sentence: int
    word: str
    kind: str
    position: int
    off: int
    predicted: bool
    ahead: bool = False


def classify_word(pair: Aligned, t: int) -> str:
    """Return the type of a French word, by what is special about it."""
    word, own = pair.target[t], [s for a, s in pair.sure if a == t]
    if word in PRONOUNS and any(pair.source[s] in OBJECTS for s in own):
        return "object pronoun"
    if word in ARTICLES:
        return "article"
    if word in ("ne", "n'"):
        return "ne, n'"
    if word in ("pas", "jamais"):
        return "pas, jamais"
    if any(sum(b == s for _, b in pair.sure) > 1 for s in own):
        return "one of two for one"
    swapped = {(t + 1, s - 1) for s in own} | {(t - 1, s + 1) for s in own}
    return "adjective or noun, swapped" if swapped & pair.sure else "other"


@torch.no_grad()
def read_words(model: nn.Module, data: Task, pairs: Sequence[Aligned]) -> Iterator[Row]:
    """Yield every French word that has a known link, with teacher forcing."""
    order = sorted(range(len(pairs)), key=lambda i: len(pairs[i].source))
    for start in range(0, len(order), 250):
        some = order[start : start + 250]
        made = make_batch(data.encode([pairs[i] for i in some]))
        logits, weights = model(made.source, made.lengths, made.previous)
        right = (logits.argmax(-1) == made.target).tolist()
        links = weights.argmax(-1).tolist()
        for row, i in enumerate(some):
            p = pairs[i]
            for t in sorted({t for t, _ in p.possible}):
                s = links[row][t]
                off = (s - b for a, b in p.possible if a == t)
                yield Row(
                    i,
                    p.target[t],
                    classify_word(p, t),
                    t,
                    min(off, key=abs),
                    right[row][t],
                    bool({(t + 1, s), (t + 2, s)} & p.sure),
                )


def compute_risk_ratio(
    rows: Sequence[Row], stratum: Callable[[Row], str] = lambda row: ""
) -> float:
    """Return how often misaligned words are mispredicted, against the others.

    Within each stratum, by Mantel and Haenszel: the ratio of a sum of
    stratum-wise products, in which a stratum without both kinds counts nothing.
    """
    tables = defaultdict(lambda: [0, 0, 0, 0])
    for row in rows:
        cells = tables[stratum(row)]
        cells[2 * (row.off != 0)] += 1
        cells[2 * (row.off != 0) + 1] += not row.predicted
    above = below = 0.0
    for aligned, wrong, misaligned, wrong_too in tables.values():
        every = aligned + misaligned
        above += wrong_too * aligned / every
        below += wrong * misaligned / every
    return above / below


def bootstrap_ratio(rows: Sequence[Row], stratum) -> list[float]:
    """Return the ratio and the middle 95 % of it over resampled sentences."""
    by_sentence = defaultdict(list)
    for row in rows:
        by_sentence[row.sentence].append(row)
    groups, rng = list(by_sentence.values()), Random(0)
    drawn = sorted(
        compute_risk_ratio(
            [r for g in rng.choices(groups, k=len(groups)) for r in g], stratum
        )
        for _ in range(DRAWS)
    )
    low, high = drawn[round(0.025 * DRAWS)], drawn[round(0.975 * DRAWS) - 1]
    return [compute_risk_ratio(rows, stratum), low, high]


def count_by_type(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Return counts of each word type: words, and what went wrong."""
    table: dict = {}
    for row in rows:
        cells = table.setdefault(
            row.kind,
            {"words": 0, "misaligned": 0, "wrong": 0, "wrong_misaligned": 0},
        )
        cells["words"] += 1
        cells["misaligned"] += row.off != 0
        cells["wrong"] += not row.predicted
        cells["wrong_misaligned"] += not row.predicted and row.off != 0
    return dict(sorted(table.items()))


def count_by_position(rows: Sequence[Row]) -> list[list[int]]:
    """Return words and misaligned words of each group of four positions."""
    groups = [[0, 0] for _ in range(max(r.position for r in rows) // 4 + 1)]
    for row in rows:
        groups[row.position // 4][0] += 1
        groups[row.position // 4][1] += row.off != 0
    return groups


def count_by_distance(rows: Sequence[Row]) -> dict[str, int]:
    """Return misaligned words: all, by one word, by more than two, too far."""
    offs = [row.off for row in rows if row.off]
    far = [x for x in offs if abs(x) > 2]
    return {
        "misaligned": len(offs),
        "by_one": sum(abs(x) == 1 for x in offs),
        "by_more_than_two": len(far),
        "of_these_to_the_right": sum(x > 0 for x in far),
    }


def measure_seed(seed: int) -> dict:
    """Return the tables of one seed: the test sentences, and longer ones."""
    model, data, _ = load_trained(f"grammar_attention_{seed}")
    rows = list(read_words(model, data, data.splits.test))
    longer = list(read_words(model, data, grammar.load_long()))
    articles = [r.ahead for r in rows if r.kind == "article" and r.off]
    pronouns = [r.off for r in rows if r.kind == "object pronoun" and r.off]
    strata = {
        "all words": lambda row: "",
        "same word type": lambda row: row.kind,
        "same French word": lambda row: row.word,
    }
    return {
        "seed": seed,
        "types": count_by_type(rows),
        "ratios": {name: bootstrap_ratio(rows, of) for name, of in strata.items()},
        "positions": count_by_position(rows),
        "positions_long": count_by_position(longer),
        "directions": count_by_distance(rows),
        "directions_long": count_by_distance(longer),
        "articles_to_their_noun": sum(articles) / len(articles),
        "pronouns_to_the_left": sum(x < 0 for x in pronouns) / len(pronouns),
    }


@experiment(on_cpu=True)
@recorded(seeds=SEEDS)
def word_alignment() -> dict:
    """Record which words the attention of three seeds misaligns."""
    return {"seeds": [measure_seed(seed) for seed in SEEDS]}
