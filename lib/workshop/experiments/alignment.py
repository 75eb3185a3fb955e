"""What trained decoders attend to: misaligned words, moved states, rotated keys.

Axes: T target words, S source words, N states, M memory width
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnbook.attention.recurrent import dot_scores
from attnbook.data import grammar
from attnbook.data.grammar import Aligned
from attnbook.data.vocabulary import START, pad_sequences
from attnbook.models.encoder import Memory
from attnbook.models.encoder_decoder import EncoderDecoder
from attnbook.training.loop import Trainer, compute_held_out_loss, make_batch
from attnbook.training.run import load_trained
from attnbook.training.tasks import Task, predict_links
from workshop.experiments.record import recorded
from workshop.experiments.runs import SHORT_TALK, change_seed
from workshop.experiments.scoring import compute_shifted_error, score_sequences

SEEDS = (0, 1, 2)
RESAMPLED = 400  # of the bootstrap over sentences
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
        for _ in range(RESAMPLED)
    )
    low, high = drawn[round(0.025 * RESAMPLED)], drawn[round(0.975 * RESAMPLED) - 1]
    return [compute_risk_ratio(rows, stratum), low, high]


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


def measure_words(seed: int) -> dict:
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


@recorded(on_cpu=True, seeds=SEEDS)
def word_alignment() -> dict:
    """Record which words the attention of three seeds misaligns.

    Source: alignment error after Och and Ney (2003), section 5.1,
        https://aclanthology.org/J03-1002; the stratified ratio is that of Mantel
        and Haenszel (1959), https://doi.org/10.1093/jnci/22.4.719
    """
    return {"seeds": [measure_words(seed) for seed in SEEDS]}


SHORTEST = 14  # words of a sentence that is cut
SMALLEST, PART = 4, 9  # words of its second part; 3 would rotate to itself
DIRECTIONS = 5  # of random directions
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the way back to position 0

# The position that the j-th of n words behind a cut is moved to.
MOVES: dict[str, Callable[[int, int, int], int]] = {
    "right positions": lambda j, n, cut: j,
    "reversed": lambda j, n, cut: n - 1 - j,
    "rotated by three": lambda j, n, cut: (j + 3) % n,
}


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
) -> dict[str, list[tuple[Memory, list[int]]]]:
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
    n = len(pair.source) - cut
    behind = range(cut, cut + n)
    base = means[list(behind)]

    def moved(to: list[int], noise: Tensor | None = None):
        step = means[to] - base
        if noise is not None:  # as long, in a random direction
            step = noise * step.norm(dim=-1, keepdim=True)
        states = torch.cat([forward + step, backward], dim=-1)
        return alone._replace(states=states), to

    made = {
        f"share {share:g}": [moved([j - round(share * cut) for j in behind])]
        for share in SHARES
    }
    made |= {
        name: [moved([move(j, n, cut) for j in range(n)])]
        for name, move in MOVES.items()
    }
    rng = torch.Generator().manual_seed(cut)
    made["random direction"] = []
    for _ in range(DIRECTIONS):
        noise = torch.randn(n, means.shape[1], generator=rng)
        noise /= noise.norm(dim=-1, keepdim=True)
        made["random direction"].append(moved(list(range(n)), noise))
    made["encoded separately"] = [(alone, list(range(n)))]
    return made


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
        for name, tried in build_memories(model, data, means, pair, cut).items():
            tally = tallies.setdefault(name, [0, 0, 0, 0])
            for memory, to in tried:
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
    as far to wrong positions must hurt.
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


ROTATIONS = 3
ALONE = {"epochs": 1, "rate": 1e-2}  # of a matrix that is trained alone


class RotatedDot(nn.Module):
    """q · W R k with a fixed rotation R and a matrix W, at first the identity.

    Attributes:
        rotation: (M, M) R, not trained.
        matrix: (M, M) W.
    """

    def __init__(self, width: int, rotation: Tensor | None = None):
        super().__init__()
        chosen = torch.eye(width) if rotation is None else rotation
        # A copy: loading other weights writes into it.
        self.register_buffer("rotation", chosen.clone())
        self.matrix = nn.Parameter(torch.eye(width), requires_grad=False)

    def key(self, memory: Tensor) -> Tensor:
        """Return W R k for every key."""
        return memory @ (self.matrix @ self.rotation).T

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return the scores of queries against keys after `key`."""
        return dot_scores(query, keys)


def draw_rotation(width: int, seed: int) -> Tensor:
    """Return a random orthogonal matrix."""
    rng = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(width, width, generator=rng)).Q


@torch.no_grad()
def compute_closeness(matrix: Tensor) -> float:
    """Return the cosine similarity of a square matrix and the identity."""
    norm = matrix.norm() * len(matrix) ** 0.5
    return float(matrix.trace() / norm)


def build_with_score(model: EncoderDecoder, score: nn.Module) -> EncoderDecoder:
    """Put another score into a decoder, and return the model."""
    model.decoder.attention.score = score
    return model


def measure(model: EncoderDecoder, data: Task) -> dict[str, float]:
    """Return loss and alignment error on the test sentences."""
    pairs: Sequence = data.splits.test
    links = predict_links(data, model, pairs)
    return {
        "loss": compute_held_out_loss(model, data.encode(pairs)),
        "alignment_error": compute_shifted_error(links, pairs, 0),
    }


def train_alone(
    model: EncoderDecoder, data: Task, parameter: nn.Parameter, seed: int
) -> None:
    """Train one parameter for an epoch, the others unchanged."""
    for x in model.parameters():
        x.requires_grad_(x is parameter)
    recipe = replace(SHORT_TALK.recipe, seed=100 + seed, **ALONE)
    valid = data.encode(data.splits.valid)
    Trainer(model, data.encode(data.splits.train), valid, recipe).run(progress=False)


def train(seed: int, data: Task, score: Callable) -> EncoderDecoder:
    """Train a decoder with a dot score from the first weights of its seed."""
    run = change_seed(SHORT_TALK, seed, score="dot")
    model = build_with_score(run.model(), score(run.decoder))
    encoded = [data.encode(x) for x in (data.splits.train, data.splits.valid)]
    Trainer(model, *encoded, run.recipe).run(progress=False)
    return model


def measure_rotations(seed: int, data: Task) -> dict:
    """Return what rotations do to the decoders of one seed."""
    width = SHORT_TALK.decoder
    rotations = [draw_rotation(width, 10 * seed + n) for n in range(ROTATIONS)]
    dot = train(seed, data, RotatedDot)
    weights = {k: v.clone() for k, v in dot.state_dict().items()}

    def fresh(rotation: Tensor | None = None) -> EncoderDecoder:
        dot.load_state_dict(weights)
        return build_with_score(dot, RotatedDot(width, rotation))

    found: dict = {"seed": seed, "trained": measure(fresh(), data)}
    found["trained"] |= compute_errors(fresh(), data)
    found["rotated"] = [measure(fresh(r), data) for r in rotations]
    for name, rotation in ("matrix", None), ("undoing", rotations[0]):
        model = fresh(rotation)
        score = model.decoder.attention.score
        train_alone(model, data, score.matrix, seed)
        found[name] = measure(model, data) | {
            "closeness": compute_closeness(score.matrix @ score.rotation)
        }
    model = fresh()
    train_alone(model, data, model.decoder.mix.weight, seed)
    found["other matrix"] = measure(model, data)
    rotated = train(seed, data, lambda n: RotatedDot(n, rotations[0]))
    found["from the start"] = measure(rotated, data) | compute_errors(rotated, data)
    build_with_score(rotated, RotatedDot(width))
    found["rotated back"] = measure(rotated, data)
    return found


def compute_errors(model: EncoderDecoder, data: Task) -> dict[str, float]:
    """Return the share of wrong sentences, generated."""
    scored = score_sequences(data, model, data.splits.test)
    return {"sequence_error": scored["sequence_error"]}


def general_matrix(data: Task) -> dict:
    """Return how much of a trained general score is a multiple of identity."""
    model = load_trained("grammar_luong_general_0")[0]
    W = model.decoder.attention.score.key.weight
    found = {"trained": measure(model, data), "closeness": compute_closeness(W)}
    width = len(W)
    with torch.no_grad():
        W.copy_(torch.eye(width) * W.trace() / width)
    return found | {"multiple of the identity": measure(model, data)}


@recorded(on_cpu=True, seeds=SEEDS)
def key_rotation() -> dict:
    """Record decoders with dot scores whose keys are rotated.

    The dot score compares coordinate by coordinate. Decoders with this score are
    trained on the grammar, once as they are and once with keys that a fixed random
    rotation multiplies from the first step on. Then the rotation of the keys is
    changed, and one matrix is trained alone. Only keys are rotated, never values.
    """
    data = SHORT_TALK.data()
    return {
        "seeds": [measure_rotations(seed, data) for seed in SEEDS],
        "general": general_matrix(data),
    }
