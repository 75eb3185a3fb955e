"""What trained decoders attend to: misaligned words, moved states.

Axes: T target words, S source words, N states, M memory width
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnbook.data import grammar
from attnbook.data.grammar import Aligned
from attnbook.data.vocabulary import START, pad_sequences
from attnbook.models.encoder import Memory
from attnbook.training.loop import make_batch
from attnbook.training.run import load_trained
from attnbook.training.tasks import Task
from workshop.experiments.record import recorded

SEEDS = (0, 1, 2)
ARTICLES = {"le", "la", "l'", "les", "un", "une", "de"}
PRONOUNS = {"me", "m'", "te", "t'", "nous", "le", "la", "l'", "les"}
OBJECTS = {"me", "you", "him", "her", "it", "us", "them"}


@dataclass(frozen=True)
class Row:
    """One French word of a test sentence.

    Attributes:
        kind: its word type.
        off: source words between the largest weight and the nearest possible
            link; 0 if the largest weight is on a possible link.
        predicted: whether the model predicts it, given the true words before.
        ahead: whether the largest weight is on a word that is surely linked
            to one of the next two French words, as an article's noun is.
    """

    kind: str
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
                    classify_word(p, t),
                    min(off, key=abs),
                    right[row][t],
                    bool({(t + 1, s), (t + 2, s)} & p.sure),
                )


def count_by_type(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Return counts of each word type: words, and what went wrong."""
    table: dict = {}
    for row in rows:
        cells = table.setdefault(
            row.kind, {"words": 0, "misaligned": 0, "wrong": 0, "wrong_misaligned": 0}
        )
        cells["words"] += 1
        cells["misaligned"] += row.off != 0
        cells["wrong"] += not row.predicted
        cells["wrong_misaligned"] += not row.predicted and row.off != 0
    return dict(sorted(table.items()))


def count_by_distance(rows: Sequence[Row]) -> dict[str, int]:
    """Return misaligned words: all, and those that are off by one word."""
    offs = [row.off for row in rows if row.off]
    return {"misaligned": len(offs), "by_one": sum(abs(x) == 1 for x in offs)}


def measure_words(seed: int) -> dict:
    """Return the counts of one seed on the test sentences."""
    model, data, _ = load_trained(f"grammar_attention_{seed}")
    rows = list(read_words(model, data, data.splits.test))
    articles = [r.ahead for r in rows if r.kind == "article" and r.off]
    pronouns = [r.off for r in rows if r.kind == "object pronoun" and r.off]
    return {
        "seed": seed,
        "types": count_by_type(rows),
        "directions": count_by_distance(rows),
        "articles_to_their_noun": sum(articles) / len(articles),
        "pronouns_to_the_left": sum(x < 0 for x in pronouns) / len(pronouns),
    }


@recorded(on_cpu=True, seeds=SEEDS)
def word_alignment() -> dict:
    """Record which words the attention of three seeds misaligns.

    Source: links as in the alignment error of Och and Ney (2003), section 5.1,
        https://aclanthology.org/J03-1002
    """
    return {"seeds": [measure_words(seed) for seed in SEEDS]}


SHORTEST = 14  # words of a sentence that is cut
SMALLEST, PART = 4, 9  # words of its second part


def find_cut(pair: Aligned) -> tuple[int, int] | None:
    """Return the first target and source position after a clean cut."""
    last = len(pair.source)
    for s in range(last - PART, last - SMALLEST + 1):
        t = min(t for t, b in pair.possible if b >= s)
        if all((a >= t) == (b >= s) for a, b in pair.possible):
            return t, s
    return None


@torch.no_grad()
def compute_state_halves(
    model: nn.Module, data: Task, pairs: Sequence[Aligned]
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Return forward and backward states (N, M/2), and their positions."""
    rows = [data.encode_source(p.source) for p in pairs]
    memory = model.encoder(*pad_sequences(rows))
    positions = torch.arange(memory.states.shape[1])
    positions = positions.expand(len(pairs), -1)[memory.padding_mask()]
    return memory.states[memory.padding_mask()].chunk(2, dim=-1), positions


def fit_position_probe(
    model: nn.Module, data: Task, pairs: Sequence[Aligned], longer: Sequence
) -> dict:
    """Return how well a linear function of a state gives its position."""
    half = len(pairs) // 2
    known, tested, far = (
        compute_state_halves(model, data, some)
        for some in (pairs[:half], pairs[half:], longer)
    )
    found = {}
    for i, name in enumerate(("forward", "backward")):
        weights = torch.linalg.lstsq(
            append_ones(known[0][i]), known[1].float()[:, None]
        ).solution
        gap = tested[1] - (append_ones(tested[0][i]) @ weights)[:, 0]
        predicted = (append_ones(far[0][i]) @ weights)[:, 0]
        found[name] = {
            "explained": float(1 - gap.var() / tested[1].float().var()),
            "read_off": [
                float(predicted[far[1] == n].mean()) for n in range(grammar.LONGEST)
            ],
        }
    return found


def append_ones(x: Float[Tensor, "N M"]) -> Tensor:
    """Return x with a column of ones."""
    return torch.cat([x, torch.ones(len(x), 1)], dim=1)


def build_memories(
    model: nn.Module, data: Task, means: Tensor, pair: Aligned, cut: int
) -> dict[str, tuple[Memory, list[int]]]:
    """Return memories of the second part, and the position each state has.

    Their backward halves are those of the part encoded separately: reading
    from the right, that direction has not met the first part yet.
    """
    source, size = pad_sequences([data.encode_source(pair.source)])
    alone = model.encoder(source[:, cut:], size - cut)
    forward, backward = model.encoder(source, size).states[:, cut:].chunk(2, -1)
    separate = alone.states.chunk(2, -1)[1]
    if not torch.allclose(backward, separate, atol=1e-5):
        raise AssertionError("the backward states of the parts differ")
    right = list(range(len(pair.source) - cut))
    before = [cut + j for j in right]

    def move(to: list[int]) -> tuple[Memory, list[int]]:
        states = torch.cat([forward + means[to] - means[before], backward], dim=-1)
        return alone._replace(states=states), to

    return {
        "unchanged": move(before),
        "right positions": move(right),
        "reversed": move(right[::-1]),
        "encoded separately": (alone, right),
    }


@torch.no_grad()
def measure_wrong_links(model: nn.Module, data: Task) -> dict:
    """Return, for each memory, the shares of wrong and of predicted links.

    `wrong`: the largest weight is on no possible word. `followed`: it is on a
    word whose state was moved to the position of a possible one. `chance`: how
    often a word chosen at random would be possible.
    """
    (forward, _), positions = compute_state_halves(model, data, data.splits.valid)
    count = grammar.TRAINED_LENGTH
    means = torch.stack([forward[positions == n].mean(0) for n in range(count)])
    tallies: dict[str, list[float]] = {}
    pairs: Sequence = data.splits.test
    for pair in pairs:
        found = find_cut(pair) if len(pair.source) >= SHORTEST else None
        if not found:
            continue
        t, cut = found
        previous = torch.tensor([[START, *data.targets.encode(pair.target[t:])]])
        memories = build_memories(model, data, means, pair, cut)
        for name, (memory, to) in memories.items():
            tally = tallies.setdefault(name, [0, 0, 0, 0])
            links = model.decoder(previous, memory).weights[0].argmax(-1)
            for i, s in enumerate(links.tolist()):
                possible = {b - cut for a, b in pair.possible if a == t + i}
                if possible:
                    tally[0] += 1
                    tally[1] += s not in possible
                    tally[2] += to[s] in possible
                    tally[3] += len(possible) / len(to)
    return {
        name: {
            "wrong": wrong / n,
            "followed": followed / n,
            "chance": chance / n,
            "words": n,
        }
        for name, (n, wrong, followed, chance) in tallies.items()
    }


@recorded(on_cpu=True, seeds=SEEDS)
def position_shift() -> dict:
    """Record what moving the forward states does to the links of 3 seeds.

    A sentence is cut where no link crosses. A decoder that starts at the cut gets
    the encoder states of the second part, whose forward halves are moved from the
    mean of one position to the mean of another. If the decoder goes by that
    position, moving the states to the right positions must help, and moving them
    to reversed positions must not.
    """
    results, cuts = [], 0
    for seed in SEEDS:
        model, data, _ = load_trained(f"grammar_attention_{seed}")
        pairs, longer = data.splits.test, grammar.load_long()
        cuts = sum(len(p.source) >= SHORTEST and find_cut(p) is not None for p in pairs)
        results.append(
            {
                "seed": seed,
                "probe": fit_position_probe(model, data, pairs, longer),
                "links": measure_wrong_links(model, data),
            }
        )
    return {"sentences": cuts, "seeds": results}
