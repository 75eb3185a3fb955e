"""Speech: Listen, Attend and Spell on spoken digits, and Whisper's heads.

Whisper is given the right transcription (teacher forcing), one token per digit, and the
row of weights with which it predicts a digit is compared with the time at which this
digit is spoken. The weights on the 30 seconds are cropped to the length of the sound,
as Whisper's authors do for word times.

Source: Chan et al. (2016), https://arxiv.org/abs/1508.01211; Radford et al. (2022),
    https://arxiv.org/abs/2212.04356; weights for word times: `find_alignment` in
    https://github.com/openai/whisper/blob/main/whisper/timing.py
Axes: B batch, F frames, C channels, T symbols or digits, S states of the listener or
    encoder positions, L blocks, H heads
"""

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from attnbook.data.spoken_digits import (
    RATE,
    WORDS,
    SpokenDigits,
    draw_digits,
    draw_varied_digits,
)
from attnbook.data.vocabulary import Vocabulary
from attnbook.decoding.generation import greedy_search
from attnbook.diagnose.intervals import find_peak_times, share_peaks_inside
from attnbook.models.devices import use_seed
from attnbook.models.hooks import ablate_heads
from attnbook.models.listen_attend_spell import (
    BANDS,
    SECONDS,
    Listener,
    compute_frames,
    make_listen_attend_spell,
)
from attnbook.models.pretrained_whisper import (
    ALIGNMENT_HEADS,
    PACKAGE,
    SHA256,
    START,
    load_whisper,
    load_whisper_tokenizer,
)
from attnbook.models.recurrent import Decoder, EncoderDecoder, count_parameters
from attnbook.models.whisper import STEP, Whisper, log_mel_spectrogram
from attnbook.training.loop import (
    Batch,
    compute_rate_factor,
    compute_symbol_loss,
    make_batch,
    optimize,
)
from attnbook.training.metrics import symbol_error_rate
from workshop.experiments.record import average_rows, recorded

SEEDS = (0, 1, 2)
STEPS, SIZE, HIGHEST, WARMUP = 600, 16, 3e-3, 0.05
TRAINED, DIGITS = 1500, (1, 4)  # training sequences, digits in each
EASY, SHORT = 0.3, 2  # share of the steps with at most so many digits
TESTED, COUNTS = 48, (1, 2, 3, 4, 5, 6, 8)
SCORED = (4, 8)  # numbers of digits for which attention is scored
TEST_SEED, LIMIT = 10**6, 80
VOCABULARY = Vocabulary.of([*WORDS, " "])


def make_last_state_speller(channels: int, symbols: int) -> EncoderDecoder:
    """Return the same listener and chapter 1's decoder, without attention."""
    listener = Listener(channels, 64)
    speller = Decoder(symbols, 32, 128, listener.width, 64, nn.LSTM)
    return EncoderDecoder(listener, speller)


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
    return [items[i : i + size] for i in range(0, len(items), size)]


def train(model: nn.Module, utterances: Sequence[Utterance], seed: int) -> None:
    def compute_loss(batch: Batch) -> Float[Tensor, ""]:
        logits = model(batch.source, batch.lengths, batch.previous).logits
        return compute_symbol_loss(logits, batch.target)

    model.train()
    optimize(
        torch.optim.Adam(model.parameters(), lr=HIGHEST),
        draw_lessons(utterances, STEPS, seed),
        compute_loss,
        lambda step: HIGHEST * compute_rate_factor(step / STEPS, WARMUP),
        clip=1.0,
    )
    model.eval()


def measure_word_errors(model: nn.Module, utterances: Sequence[Utterance]) -> float:
    batch = join_utterances(utterances)
    found = greedy_search(model, batch.source, batch.lengths, LIMIT)
    words = [tuple("".join(VOCABULARY.decode(one.ids)).split()) for one in found]
    return symbol_error_rate(words, [[one.spoken.words] for one in utterances])


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
    batch = join_utterances(utterances)
    weights = model(batch.source, batch.lengths, batch.previous).weights
    states = model.encoder(batch.source, batch.lengths).lengths.tolist()
    return [
        weights[i, : len(one.symbols) + 1, :n].cpu()
        for i, (one, n) in enumerate(zip(utterances, states, strict=True))
    ]


def measure_mass_inside(
    weights: Float[Tensor, "T S"], intervals: Float[Tensor, "T 2"]
) -> Float[Tensor, ""]:
    """Return the mean weight on states whose middle is in the query's interval."""
    middles = (torch.arange(weights.shape[-1]) + 0.5) * SECONDS
    marked = (middles >= intervals[:, :1]) & (middles < intervals[:, 1:])
    return (weights * marked).sum(dim=-1).mean()


def score_weights(
    weights: Float[Tensor, "T S"], spoken: SpokenDigits
) -> dict[str, float]:
    """Return how well letters attend to the digit whose name they spell.

    `peak` is the share of letters whose largest weight is on the digit, `first` the
    same of first letters; `mass` the mean weight of letters on the digit, `uniform`
    this mass if all weights are equal; `order_alone` is `peak` if symbols move evenly
    from the first state to the last.
    """
    letters = number_letters(spoken.words)
    rows = torch.tensor([row for row, _ in letters])
    words = [word for _, word in letters]
    first = torch.tensor([i for i, word in enumerate(words) if word not in words[:i]])
    inside, chosen = torch.tensor(spoken.intervals)[words], weights[rows]
    equal = torch.full_like(chosen, 1 / chosen.shape[1])
    even = (rows + 0.5) / len(weights) * (len(spoken.sound) / RATE)
    peaks = find_peak_times(chosen, SECONDS)
    found = {
        "peak": share_peaks_inside(peaks, inside),
        "first": share_peaks_inside(peaks[first], inside[first]),
        "mass": measure_mass_inside(chosen, inside),
        "uniform": measure_mass_inside(equal, inside),
        "order_alone": share_peaks_inside(even, inside),
    }
    return {name: float(x) for name, x in found.items()}


def score_attention(
    model: nn.Module, utterances: Sequence[Utterance]
) -> dict[str, float]:
    pairs = zip(attend(model, utterances), utterances, strict=True)
    return average_rows([score_weights(weights, one.spoken) for weights, one in pairs])


def show_example(model: nn.Module, one: Utterance) -> dict:
    return {
        "words": list(one.spoken.words),
        "intervals": [list(x) for x in one.spoken.intervals],
        "thousandths": (attend(model, [one])[0] * 1000).round().int().tolist(),
    }


def build_model(name: str, seed: int) -> nn.Module:
    with use_seed(seed):
        return MODELS[name](BANDS, len(VOCABULARY))


@recorded(seeds=SEEDS)
def listen_attend_spell() -> dict:
    """Record word errors with and without attention, and its alignment.

    Two models of about as many parameters spell out the names of spoken digits:
    one attends to the states of its listener, the other receives the last states
    only. Attention is scored on the times at which the digits are spoken.

    Source: Chan et al. (2016), https://arxiv.org/abs/1508.01211
    """
    tests = {n: draw_utterances(TEST_SEED + n, TESTED, (n, n)) for n in COUNTS}
    rows, example = [], {}
    for seed in SEEDS:
        train_on = draw_utterances(seed, TRAINED, DIGITS)
        for name in MODELS:
            model = build_model(name, seed)

            def score(model=model) -> dict:
                return {str(n): score_attention(model, tests[n]) for n in SCORED}

            row = {"model": name, "seed": seed, "parameters": count_parameters(model)}
            if name == "attention":
                row["untrained"] = score()
            train(model, train_on, seed)
            row["word_errors"] = [measure_word_errors(model, tests[n]) for n in COUNTS]
            if name == "attention":
                row["scores"] = score()
                example = example or show_example(model, tests[4][0])
                nn.init.zeros_(model.decoder.attention.score.key.weight)
                row["equal_weights_word_errors"] = measure_word_errors(model, tests[4])
            rows.append(row)
    return {"rows": rows, "counts": list(COUNTS), "example": example}


LONGER = 2.0  # seconds added to one pause


def score_word_order(utterances: Sequence[Utterance]) -> float:
    """Return how often order alone finds a digit's time, at best."""
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


@recorded(seeds=SEEDS)
def listen_attend_spell_pauses() -> dict:
    """Record where attention is after a pause longer than any in training.

    The models with attention are trained as in `listen_attend_spell`. If attention
    followed an expected time instead of the sound, a long pause would mislead it.

    Source: Chan et al. (2016), https://arxiv.org/abs/1508.01211
    """
    n = SCORED[0]
    tests = {
        "usual": draw_utterances(TEST_SEED + n, TESTED, (n, n)),
        "longer": draw_utterances(TEST_SEED - n, TESTED, (n, n), LONGER),
    }
    rows = []
    for seed in SEEDS:
        model = build_model("attention", seed)
        train(model, draw_utterances(seed, TRAINED, DIGITS), seed)
        for name, test in tests.items():
            scores = score_attention(model, test)
            errors = measure_word_errors(model, test)
            rows.append({"seed": seed, "test": name, "word_errors": errors} | scores)
    order = {name: score_word_order(test) for name, test in tests.items()}
    return {"rows": rows, "word_order": order}


SEQUENCES, HEARD_DIGITS = 8, 6
POSITION_SECONDS = 2 * STEP / RATE  # for which an encoder position stands


class Heard(NamedTuple):
    """A sequence of digits and what the encoder computes from it."""

    spoken: SpokenDigits
    memory: Tensor
    ids: Tensor
    positions: int


@torch.no_grad()
def hear(model: Whisper, spoken: SpokenDigits, digits: Sequence[int]) -> Heard:
    seconds = len(model.encoder.positions) * 2 * STEP // RATE
    spectrogram = log_mel_spectrogram(spoken.sound, RATE, model.config.mels, seconds)
    memory = model.encoder(spectrogram[None])
    ids = [*START, *(digits[digit - 1] for digit in spoken.digits)]
    return Heard(
        spoken, memory, torch.tensor([ids]), round(len(spoken.sound) / (2 * STEP))
    )


def draw_heard(model: Whisper, digits: Sequence[int], seed: int) -> list[Heard]:
    rng = Random(seed)
    drawn = [draw_digits(rng, HEARD_DIGITS) for _ in range(SEQUENCES)]
    return [hear(model, spoken, digits) for spoken in drawn]


@torch.no_grad()
def attend_to_digits(model: Whisper, heard: Heard) -> Float[Tensor, "L H T S"]:
    _, cross = model.decoder(heard.ids, heard.memory)
    rows = slice(len(START) - 1, -1)  # position t predicts token t + 1
    return cross[0, :, :, rows]


def score_maps(
    weights: Float[Tensor, "*B T S"], heard: Heard
) -> dict[str, Float[Tensor, "*B"]]:
    """Return where the peaks of cropped weights lie, as shares of the peaks.

    `inside` the digit's interval; in that of the `previous` digit (without the
    first).
    """
    times = find_peak_times(weights, POSITION_SECONDS)
    known = torch.tensor(heard.spoken.intervals)
    return {
        "inside": share_peaks_inside(times, known),
        "previous": share_peaks_inside(times[..., 1:], known[:-1]),
    }


def measure_heads(
    model: Whisper, heard: Sequence[Heard]
) -> dict[str, Float[Tensor, "L H"]]:
    weights = [attend_to_digits(model, one)[..., : one.positions] for one in heard]
    scores = [score_maps(*pair) for pair in zip(weights, heard, strict=True)]
    found = {x: torch.stack([row[x] for row in scores]).mean(dim=0) for x in scores[0]}
    others = [  # the share of peaks inside the intervals of the other sequences
        score_maps(mine, theirs)["inside"]
        for mine, one in zip(weights, heard, strict=True)
        for theirs in heard
        if theirs is not one
    ]
    return found | {"order_alone": torch.stack(others).mean(dim=0)}


@torch.no_grad()
def compute_loss(model: Whisper, heard: Sequence[Heard]) -> float:
    """Return the mean cross-entropy of the digits (nats), teacher-forced."""
    ids = torch.cat([one.ids for one in heard])
    memory = torch.cat([one.memory for one in heard])
    logits, _ = model.decoder(ids[:, :-1], memory)
    first = len(START)
    return float(F.cross_entropy(logits[:, first - 1 :].mT, ids[:, first:]))


def measure_single_ablations(
    model: Whisper, heard: Sequence[Heard]
) -> Float[Tensor, "L H"]:
    L, H = model.config.blocks, model.config.heads
    table = torch.zeros(L, H)
    for i, h in product(range(L), range(H)):
        # In each block, self-attention comes before cross-attention.
        with ablate_heads(model.decoder, [(2 * i + 1, h)]):
            table[i, h] = compute_loss(model, heard)
    return table


def find_digit_tokens(tokenizer) -> list[int]:
    """Return the token of each digit from 1 to 9, with the space before it."""
    words = [f" {digit}" for digit in range(1, 10)]
    found = [tokenizer.encode(x, add_special_tokens=False).ids for x in words]
    return [token for (token,) in found]


@recorded(
    seeds=SEEDS, model=f"Whisper tiny.en, float16, from {PACKAGE}, MIT", sha256=SHA256
)
def whisper_digits() -> dict:
    """Record where 24 cross-attention heads look while digits are predicted.

    Each head is scored, and ablated alone.

    Source: Radford et al. (2022), https://arxiv.org/abs/2212.04356; the heads for
        word times: https://github.com/openai/whisper/pull/869
    """
    model = load_whisper()
    tokens = find_digit_tokens(load_whisper_tokenizer())
    draws = [draw_heard(model, tokens, seed) for seed in SEEDS]
    measured = [
        measure_heads(model, heard)
        | {"loss_without": measure_single_ablations(model, heard)}
        for heard in draws
    ]
    rows = []
    for head in product(range(model.config.blocks), range(model.config.heads)):
        row = {"layer": head[0], "head": head[1], "listed": head in ALIGNMENT_HEADS}
        for name in measured[0]:
            found = [float(one[name][head]) for one in measured]
            row[name] = [round(x, 5) for x in found]
        rows.append(row)
    return {"heads": rows, "loss": [compute_loss(model, heard) for heard in draws]}
