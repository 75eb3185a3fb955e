"""Listen, Attend and Spell on spoken digits, with and without attention.

Source: Chan et al. (2016), https://arxiv.org/abs/1508.01211
Axes: B batch, F frames, C channels, T symbols, S states of the listener
"""

from collections.abc import Iterator, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from attnbook.data.spoken_digits import RATE, WORDS, SpokenDigits, draw_varied_digits
from attnbook.data.vocabulary import Vocabulary
from attnbook.diagnose.intervals import (
    extend_intervals,
    find_peak_times,
    measure_mass_inside,
    share_peaks_inside,
)
from attnbook.models.devices import find_device, use_seed
from attnbook.models.encoder_decoder import count_parameters
from attnbook.models.listen_attend_spell import (
    BANDS,
    SECONDS,
    compute_frames,
    make_last_state_speller,
    make_listen_attend_spell,
)
from attnbook.training.loop import (
    Batch,
    compute_rate_factor,
    compute_symbol_loss,
    make_batch,
    optimize,
)
from attnbook.training.metrics import symbol_error_rate
from attnbook.training.search import greedy_search
from workshop.experiments.machine import get_device
from workshop.experiments.record import recorded

SEEDS = (0, 1, 2)
STEPS, SIZE, HIGHEST, WARMUP = 600, 16, 3e-3, 0.05
TRAINED, DIGITS = 1500, (1, 4)  # training sequences, digits in each
EASY, SHORT = 0.3, 2  # share of the steps with at most so many digits
TESTED, COUNTS = 48, (1, 2, 3, 4, 5, 6, 8)
SCORED = (4, 8)  # numbers of digits for which attention is scored
TEST_SEED, LIMIT = 10**6, 80
VOCABULARY = Vocabulary.of([*WORDS, " "])
MODELS = {
    "attention": make_listen_attend_spell,
    "one context vector": make_last_state_speller,
}


class Utterance(NamedTuple):
    """A sequence of digits, its frames (F, C) and its spelling."""

    spoken: SpokenDigits
    frames: Tensor
    symbols: list[int]


def draw_utterances(
    seed: int, count: int, digits: tuple[int, int], longer: float = 0.0
) -> list[Utterance]:
    """Return sequences of at least and at most so many digits.

    Args:
        seed: of everything that is drawn; those of tests are at least 10**6.
        count: how many sequences.
        digits: the fewest and the most.
        longer: seconds that are added to one pause of each sequence.
    """
    rng, made = Random(seed), []
    for _ in range(count):
        spoken = draw_varied_digits(rng, rng.randint(*digits), longer)
        frames = compute_frames(spoken.sound, RATE)
        symbols = VOCABULARY.encode(" ".join(spoken.words))
        made.append(Utterance(spoken, frames.contiguous(), symbols))
    return made


def join_utterances(utterances: Sequence[Utterance]) -> Batch:
    """Return a batch whose sources are frames (B, F, C)."""
    frames = [one.frames for one in utterances]
    lengths = torch.tensor([len(x) for x in frames])
    made = make_batch([([0], one.symbols) for one in utterances])
    padded = pad_sequence(frames, batch_first=True)
    return made._replace(source=padded, lengths=lengths)


def draw_batches(
    utterances: Sequence[Utterance], steps: int, rng: Random
) -> Iterator[Batch]:
    """Yield batches of similar length, epoch after epoch."""
    waiting: list[list[int]] = []
    for _ in range(steps):
        if not waiting:
            order = rng.sample(range(len(utterances)), len(utterances))
            pools = [
                sorted(pool, key=lambda i: len(utterances[i].frames))
                for pool in split(order, 10 * SIZE)
            ]
            waiting = [some for pool in pools for some in split(pool, SIZE)]
            rng.shuffle(waiting)
        yield join_utterances([utterances[i] for i in waiting.pop()])


def draw_lessons(
    utterances: Sequence[Utterance], steps: int, seed: int
) -> Iterator[Batch]:
    """Yield batches of short sequences at first, and then of all."""
    short = [x for x in utterances if len(x.spoken.digits) <= SHORT]
    easy = round(EASY * steps)
    yield from draw_batches(short, easy, Random(2 * seed))
    yield from draw_batches(utterances, steps - easy, Random(2 * seed + 1))


def split(items: list[int], size: int) -> list[list[int]]:
    """Return pieces of a list that have this size, the last one at most."""
    return [items[i : i + size] for i in range(0, len(items), size)]


def train(model: nn.Module, utterances: Sequence[Utterance], seed: int) -> float:
    """Train with teacher forcing; return the mean loss of the last 20 steps."""
    losses: list[float] = []
    device = find_device(model)

    def compute_loss(batch: Batch) -> Float[Tensor, ""]:
        logits = model(batch.source, batch.lengths, batch.previous).logits
        return compute_symbol_loss(logits, batch.target)

    model.train()
    optimize(
        torch.optim.Adam(model.parameters(), lr=HIGHEST),
        (x.to(device) for x in draw_lessons(utterances, STEPS, seed)),
        compute_loss,
        lambda step: HIGHEST * compute_rate_factor(step / STEPS, WARMUP),
        clip=1.0,
        callbacks=[lambda _, loss: losses.append(loss)],
    )
    model.eval()
    last = losses[-20:]
    return sum(last) / len(last)


def transcribe(
    model: nn.Module, utterances: Sequence[Utterance]
) -> list[tuple[str, ...]]:
    """Return the words of greedy search."""
    batch = join_utterances(utterances).to(find_device(model))
    found = greedy_search(model, batch.source, batch.lengths, LIMIT)
    return [tuple("".join(VOCABULARY.decode(one.ids)).split()) for one in found]


def measure_word_errors(model: nn.Module, utterances: Sequence[Utterance]) -> float:
    """Return the word error rate of greedy search, as a share."""
    wanted = [[one.spoken.words] for one in utterances]
    return symbol_error_rate(transcribe(model, utterances), wanted)


def number_letters(words: Sequence[str]) -> list[tuple[int, int]]:
    """Return (symbol, word) for each letter; a space is one symbol."""
    found, now = [], 0
    for i, word in enumerate(words):
        found += [(now + k, i) for k in range(len(word))]
        now += len(word) + 1
    return found


@torch.no_grad()
def attend(
    model: nn.Module, utterances: Sequence[Utterance]
) -> list[Float[Tensor, "T S"]]:
    """Return the weights of every symbol and of the end, teacher-forced."""
    batch = join_utterances(utterances).to(find_device(model))
    weights = model(batch.source, batch.lengths, batch.previous).weights
    states = model.encoder(batch.source, batch.lengths).lengths.tolist()
    return [
        weights[i, : len(one.symbols) + 1, :n].cpu()
        for i, (one, n) in enumerate(zip(utterances, states, strict=True))
    ]


def score_weights(
    weights: Float[Tensor, "T S"], spoken: SpokenDigits
) -> dict[str, float]:
    """Return how well letters attend to the digit whose name they spell.

    Returns:
        `peak`: share of letters whose largest weight is on the digit;
        `nearest`: share for which no other digit is nearer; `first`: `peak` of
        first letters; `mass`: mean weight of letters on the digit; `uniform`:
        this mass if all weights are equal; `order_alone` and `first_order`:
        `peak` and `first` if symbols move evenly from the first state to the
        last.
    """
    letters = number_letters(spoken.words)
    rows = torch.tensor([row for row, _ in letters])
    words = [word for _, word in letters]
    first = torch.tensor([i for i, word in enumerate(words) if word not in words[:i]])
    seconds = len(spoken.sound) / RATE
    digits = torch.tensor(spoken.intervals)
    inside, near = digits[words], extend_intervals(digits, seconds)[words]
    chosen = weights[rows]
    equal = torch.full_like(chosen, 1 / chosen.shape[1])
    even = (rows + 0.5) / len(weights) * seconds
    peaks = find_peak_times(chosen, SECONDS)
    found = {
        "peak": share_peaks_inside(peaks, inside),
        "nearest": share_peaks_inside(peaks, near),
        "first": share_peaks_inside(peaks[first], inside[first]),
        "mass": measure_mass_inside(chosen, inside, SECONDS),
        "uniform": measure_mass_inside(equal, inside, SECONDS),
        "order_alone": share_peaks_inside(even, inside),
        "first_order": share_peaks_inside(even[first], inside[first]),
    }
    return {name: float(x) for name, x in found.items()}


def score_attention(
    model: nn.Module, utterances: Sequence[Utterance]
) -> dict[str, float]:
    """Return the mean scores over sequences."""
    scores = [
        score_weights(weights, one.spoken)
        for weights, one in zip(attend(model, utterances), utterances, strict=True)
    ]
    return {name: sum(one[name] for one in scores) / len(scores) for name in scores[0]}


def make_weights_equal(model: nn.Module) -> None:
    """Set all scores of a model's attention to zero."""
    nn.init.zeros_(model.decoder.attention.score.key.weight)


def show_example(model: nn.Module, one: Utterance) -> dict:
    """Return the weights of one sequence, in thousandths, and its times."""
    return {
        "words": list(one.spoken.words),
        "intervals": [list(x) for x in one.spoken.intervals],
        "seconds": len(one.spoken.sound) / RATE,
        "thousandths": (attend(model, [one])[0] * 1000).round().int().tolist(),
    }


def draw_tests() -> dict[int, list[Utterance]]:
    """Return the test sequences by their number of digits."""
    return {n: draw_utterances(TEST_SEED + n, TESTED, (n, n)) for n in COUNTS}


def measure_model(
    name: str, seed: int, train_on: Sequence[Utterance], tests: dict
) -> tuple[dict, nn.Module]:
    """Train one model and return its row of the record, and the model."""
    with use_seed(seed):
        model = MODELS[name](BANDS, len(VOCABULARY)).to(get_device())
    score = partial(score_attention, model)
    row = {"model": name, "seed": seed, "parameters": count_parameters(model)}
    if name == "attention":
        row["untrained"] = {str(n): score(tests[n]) for n in SCORED}
    row["loss"] = train(model, train_on, seed)
    row["word_errors"] = [measure_word_errors(model, tests[n]) for n in COUNTS]
    if name == "attention":
        row["scores"] = {str(n): score(tests[n]) for n in SCORED}
    return row, model


def measure_everything() -> dict:
    """Train both models with every seed, and score them."""
    tests, rows, example = draw_tests(), [], {}
    for seed in SEEDS:
        train_on = draw_utterances(seed, TRAINED, DIGITS)
        for name in MODELS:
            row, model = measure_model(name, seed, train_on, tests)
            if name == "attention":
                example = example or show_example(model, tests[4][0])
                make_weights_equal(model)
                row["equal_weights_word_errors"] = measure_word_errors(model, tests[4])
            rows.append(row)
    return {
        "rows": rows,
        "counts": list(COUNTS),
        "example": example,
        "steps": STEPS,
        "size": SIZE,
        "trained": TRAINED,
        "tested": TESTED,
    }


@recorded(seeds=SEEDS)
def listen_attend_spell() -> dict:
    """Record word errors with and without attention, and its alignment.

    Two models of about as many parameters spell out the names of spoken digits:
    one attends to the states of its listener, the other receives the last states
    only. Attention is scored on the times at which the digits are spoken.

    Source: Chan et al. (2016), https://arxiv.org/abs/1508.01211
    """
    return measure_everything()


LONGER = 2.0  # seconds added to one pause


def score_word_order(utterances: Sequence[Utterance]) -> float:
    """Return how often order alone finds a digit's time, at best.

    Digit n of N is assumed at the share (n - 1 + x) / N of the sound; the x is
    chosen for which most times are inside, among 0.05, 0.1, ... 0.95.
    """
    found = []
    for step in range(1, 20):
        hits = [
            share_peaks_inside(
                (torch.arange(n) + step / 20) / n * len(spoken.sound) / RATE,
                torch.tensor(spoken.intervals),
            )
            for spoken, _, _ in utterances
            for n in [len(spoken.digits)]
        ]
        found.append(float(torch.stack(hits).mean()))
    return max(found)


def measure_pauses() -> dict:
    """Train with attention again; test it with one much longer pause."""
    n = SCORED[0]
    tests = {
        "usual": draw_utterances(TEST_SEED + n, TESTED, (n, n)),
        "longer": draw_utterances(TEST_SEED - n, TESTED, (n, n), LONGER),
    }
    rows = []
    for seed in SEEDS:
        with use_seed(seed):
            model = make_listen_attend_spell(BANDS, len(VOCABULARY))
        model = model.to(get_device())
        train(model, draw_utterances(seed, TRAINED, DIGITS), seed)
        for name, test in tests.items():
            scores = score_attention(model, test)
            errors = measure_word_errors(model, test)
            rows.append({"seed": seed, "test": name, "word_errors": errors})
            rows[-1] |= scores
    order = {name: score_word_order(test) for name, test in tests.items()}
    return {"rows": rows, "digits": n, "seconds": LONGER, "word_order": order}


@recorded(seeds=SEEDS)
def listen_attend_spell_pauses() -> dict:
    """Record where attention is after a pause longer than any in training.

    The models with attention are trained as in `listen_attend_spell`. If attention
    followed an expected time instead of the sound, a long pause would mislead it.

    Source: Chan et al. (2016), https://arxiv.org/abs/1508.01211
    """
    return measure_pauses()
