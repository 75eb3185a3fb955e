"""What trained models contain: misaligned words, moved states, probed letters.

Source: the probing of Adi et al. (2017), section 3,
    https://arxiv.org/abs/1608.04207 (there word content and order; here the
    letter at each position). Departure: one linear layer, no hidden one.
Axes: T target words, S source words, N states or words, M memory width, K positions,
    V symbols
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.data import Pair, grammar
from attnbook.data.grammar import Aligned
from attnbook.data.vocabulary import PAD, START, pad_sequences
from attnbook.models.devices import find_device, use_seed
from attnbook.models.recurrent import Memory
from attnbook.training.loop import make_batch, optimize
from attnbook.training.run import load_trained
from attnbook.training.tasks import Task
from workshop.experiments.record import get_device, recorded

SEEDS = (0, 1, 2)
ARTICLES = {"le", "la", "l'", "les", "un", "une", "de"}
PRONOUNS = {"me", "m'", "te", "t'", "nous", "le", "la", "l'", "les"}
OBJECTS = {"me", "you", "him", "her", "it", "us", "them"}


@dataclass(frozen=True)
class Row:
    """One French word of a test sentence."""

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
            row.kind, {"words": 0, "misaligned": 0, "wrong_misaligned": 0}
        )
        cells["words"] += 1
        cells["misaligned"] += row.off != 0
        cells["wrong_misaligned"] += not row.predicted and row.off != 0
    return dict(sorted(table.items()))


def measure_words(seed: int) -> dict:
    """Return the counts of one seed on the test sentences."""
    model, data, _ = load_trained(f"grammar_attention_{seed}")
    rows = list(read_words(model, data, data.splits.test))
    articles = [r.ahead for r in rows if r.kind == "article" and r.off]
    pronouns = [r.off for r in rows if r.kind == "object pronoun" and r.off]
    return {
        "seed": seed,
        "types": count_by_type(rows),
        "directions": {
            "misaligned": sum(bool(r.off) for r in rows),
            "by_one": sum(abs(r.off) == 1 for r in rows),
        },
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
    """Return the mean position that a linear function reads off longer sentences."""
    known, far = (
        compute_state_halves(model, data, some)
        for some in (pairs[: len(pairs) // 2], longer)
    )
    found = {}
    for i, name in enumerate(("forward", "backward")):
        weights = torch.linalg.lstsq(
            append_ones(known[0][i]), known[1].float()[:, None]
        ).solution
        predicted = (append_ones(far[0][i]) @ weights)[:, 0]
        found[name] = {
            "read_off": [
                float(predicted[far[1] == n].mean()) for n in range(grammar.LONGEST)
            ]
        }
    return found


def append_ones(x: Float[Tensor, "N M"]) -> Tensor:
    return torch.cat([x, torch.ones(len(x), 1)], dim=1)


def build_memories(
    model: nn.Module, data: Task, means: Tensor, pair: Aligned, cut: int
) -> dict[str, tuple[Memory, list[int]]]:
    """Return memories of the second part, and the position each state has."""
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
    """Return, for each memory, the shares of wrong and of predicted links."""
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
        name: {"wrong": wrong / n, "followed": followed / n, "chance": chance / n}
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
    results = []
    for seed in SEEDS:
        model, data, _ = load_trained(f"grammar_attention_{seed}")
        pairs, longer = data.splits.test, grammar.load_long()
        results.append(
            {
                "seed": seed,
                "probe": fit_position_probe(model, data, pairs, longer),
                "links": measure_wrong_links(model, data),
            }
        )
    return {"seeds": results}


PROBED = ("cmudict_fixed_0", "cmudict_forward_0")
LENGTHS = (6, 9, 12)
WORDS = 3000  # to train a probe on, as many for each length
STEPS, EVERY, RATE = 3000, 250, 1e-2


@torch.no_grad()
def compute_contexts(
    model: nn.Module, data: Task, pairs: Sequence[Pair]
) -> Float[Tensor, "N M"]:
    rows = []
    for start in range(0, len(pairs), 512):
        some = [data.encode_source(p.source) for p in pairs[start : start + 512]]
        source, lengths = (x.to(find_device(model)) for x in pad_sequences(some))
        rows.append(model.encoder(source, lengths).last)
    return torch.cat(rows)


def encode_letters(
    data: Task, pairs: Sequence[Pair], positions: int
) -> Int[Tensor, "N K"]:
    """Return the id of the letter at each position, PAD after the end."""
    table = torch.full((len(pairs), positions), PAD)
    for row, p in zip(table, pairs, strict=True):
        ids = data.sources.encode_known(p.source)[:positions]
        row[: len(ids)] = torch.tensor(ids)
    return table


def fit_probe(
    vectors: Float[Tensor, "N M"], wanted: Int[Tensor, "N K"], symbols: int
) -> nn.Linear:
    """Return a linear layer from a vector to the letter at every position."""
    with use_seed(0):
        probe = nn.Linear(vectors.shape[1], wanted.shape[1] * symbols)
    probe, wanted = probe.to(vectors.device), wanted.to(vectors.device)
    rng = torch.Generator().manual_seed(0)
    count = len(vectors) - max(1, len(vectors) // 15)
    kept: list[tuple[float, dict[str, Tensor]]] = []

    def keep_weights(step: int, _: float) -> None:
        if step % EVERY == 0:
            with torch.no_grad():
                loss = measure_letter_loss(probe, vectors[count:], wanted[count:])
            weights = {k: v.clone() for k, v in probe.state_dict().items()}
            kept.append((float(loss), weights))

    optimize(
        torch.optim.Adam(probe.parameters()),
        (torch.randint(count, (256,), generator=rng) for _ in range(STEPS)),
        lambda rows: measure_letter_loss(probe, vectors[rows], wanted[rows]),
        rate=lambda step: RATE * (1 - step / STEPS),
        callbacks=[keep_weights],
    )
    keep_weights(0, 0.0)  # after the last step
    probe.load_state_dict(min(kept, key=lambda pair: pair[0])[1])
    return probe


def measure_letter_loss(
    probe: nn.Linear, vectors: Float[Tensor, "N M"], wanted: Int[Tensor, "N K"]
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of the letters, in nats."""
    logits = probe(vectors).unflatten(1, (wanted.shape[1], -1))
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten())


@torch.no_grad()
def score_probe(
    probe: nn.Linear, vectors: Float[Tensor, "N M"], wanted: Int[Tensor, "N K"]
) -> list[float]:
    """Return the share of letters that the probe reads, by position."""
    logits = probe(vectors).unflatten(1, (wanted.shape[1], -1))
    return (logits.argmax(-1).cpu() == wanted).double().mean(0).tolist()


def draw_words(words: Sequence[Pair], n: int) -> list[Pair]:
    """Return the words of length n in a random order."""
    some = [p for p in words if len(p.source) == n]
    return random.Random(n).sample(some, len(some))


def probe_encoder(model: nn.Module, data: Task) -> dict[str, list[float]]:
    """Return the share of letters read, by length and position."""
    model.to(get_device())
    words = list({p.source: p for p in data.splits.train}.values())
    read = {}
    for n in LENGTHS:
        known = draw_words(words, n)[:WORDS]
        tested = [p for p in data.splits.test if len(p.source) == n]
        probe = fit_probe(
            compute_contexts(model, data, known),
            encode_letters(data, known, n),
            len(data.sources),
        )
        vectors = compute_contexts(model, data, tested)
        read[str(n)] = score_probe(probe, vectors, encode_letters(data, tested, n))
    return read


def measure_chance_levels(data: Task) -> dict[str, list[float]]:
    """Return how often the most frequent letter is correct, by length and position."""
    words = list({p.source: p for p in data.splits.train}.values())
    found = {}
    for n in LENGTHS:
        known = draw_words(words, n)
        tested = [p.source for p in data.splits.test if len(p.source) == n]
        common = [
            Counter(p.source[k] for p in known).most_common(1)[0][0] for k in range(n)
        ]
        found[str(n)] = [
            sum(word[k] == letter for word in tested) / len(tested)
            for k, letter in enumerate(common)
        ]
    return found


@recorded(seeds=[0])
def context_probe() -> dict:
    """Record how well each letter can be read off the context vector.

    Each length has a probe of its own, so that a position is the same distance
    from both ends in all of its words, and as many words to fit it on. Besides
    trained encoders, encoders with random weights are probed.
    """
    accuracy: dict[str, dict] = {}
    for name in PROBED:
        model, data, run = load_trained(name)
        accuracy[name] = probe_encoder(model, data)
        initial = run.model().eval()
        accuracy[f"{name}_untrained"] = probe_encoder(initial, data)
    return {"accuracy": accuracy, "chance": measure_chance_levels(data)}
