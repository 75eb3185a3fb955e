"""Whisper's cross-attention while it predicts spoken digits.

The digits follow each other after random pauses. The model is given the right
transcription (teacher forcing), one token per digit, and the row of weights
with which it predicts a digit is compared with the time at which this digit is
spoken. The weights on the 30 seconds are cropped to the length of the sound, as
Whisper's authors do for word times.

Source: Radford et al. (2022), https://arxiv.org/abs/2212.04356; weights for word
    times: `find_alignment` in
    https://github.com/openai/whisper/blob/main/whisper/timing.py; rollout: Abnar
    and Zuidema (2020), section 3, https://arxiv.org/abs/2005.00928
Axes: L blocks, H heads, T digits, S encoder positions
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from attnbook.data.spoken_digits import RATE, WORDS, SpokenDigits, draw_digits
from attnbook.diagnose.intervals import (
    crop_keys,
    extend_intervals,
    find_peak_times,
    measure_mass_inside,
    share_peaks_inside,
)
from attnbook.diagnose.rollout import attention_rollout
from attnbook.diagnose.weights import entropy, head_similarity
from attnbook.models.hooks import (
    ablate_heads,
    average_outputs,
    record_heads,
    record_weights,
)
from attnbook.models.pretrained_whisper import (
    ALIGNMENT_HEADS,
    END,
    PACKAGE,
    SHA256,
    START,
    load_whisper,
    load_whisper_tokenizer,
)
from attnbook.models.whisper import (
    STEP,
    Whisper,
    keep_memory_projections,
    log_mel_spectrogram,
    transcribe_greedily,
)
from attnbook.training.metrics import symbol_error_rate
from workshop.experiments.listen_attend_spell import TEST_SEED, TESTED, draw_utterances
from workshop.experiments.record import recorded

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SEQUENCES, DIGITS = 8, 6
SECONDS = 2 * STEP / RATE  # for which an encoder position stands


@dataclass(frozen=True)
class Heard:
    """A sequence of digits and what the encoder computes from it.

    Attributes:
        spoken: the digits and when they are spoken.
        memory: the encoder's states (1, S, C).
        ids: start tokens and digits (1, 2 + T).
        positions: how many encoder positions the sound takes.
        paths: the rollout of the encoder (S, S).
    """

    spoken: SpokenDigits
    memory: Tensor
    ids: Tensor
    positions: int
    paths: Tensor = field(repr=False)

    @property
    def intervals(self) -> Float[Tensor, "T 2"]:
        """When each digit is spoken, in seconds."""
        return torch.tensor(self.spoken.intervals)


@torch.no_grad()
def hear(model: Whisper, spoken: SpokenDigits, digits: Sequence[int]) -> Heard:
    """Return a sequence of digits with the states that the encoder computes."""
    seconds = len(model.encoder.positions) * 2 * STEP // RATE
    spectrogram = log_mel_spectrogram(spoken.sound, RATE, model.config.mels, seconds)
    layers = [block.attention for block in model.encoder.blocks]
    with record_weights(layers) as recorded_maps:
        memory = model.encoder(spectrogram[None])
    ids = [*START, *(digits[digit - 1] for digit in spoken.digits)]
    return Heard(
        spoken,
        memory,
        torch.tensor([ids]),
        round(len(spoken.sound) / (2 * STEP)),
        attention_rollout(torch.cat(recorded_maps)),
    )


def draw_heard(model: Whisper, digits: Sequence[int], seed: int) -> list[Heard]:
    """Return the sequences of one seed."""
    rng = Random(seed)
    drawn = [draw_digits(rng, DIGITS) for _ in range(SEQUENCES)]
    return [hear(model, spoken, digits) for spoken in drawn]


@torch.no_grad()
def attend_to_digits(
    model: Whisper, heard: Heard
) -> tuple[Float[Tensor, "L H T S"], dict[str, Float[Tensor, "T S"]]]:
    """Return all cross-attention weights with which digits are predicted.

    Returns:
        The weights of each head; and by name the `rollout` from the sound to
        the prediction, with that of the encoder and without, where each
        position of the encoder stands for its own time. All of them are on all
        encoder positions.
    """
    layers = [block.attention for block in model.decoder.blocks]
    with record_weights(layers) as kept:
        _, cross = model.decoder(heard.ids, heard.memory)
    own, rows = torch.cat(kept), slice(len(START) - 1, -1)
    paths = {
        "rollout": heard.paths,
        "rollout without the encoder": torch.eye(len(heard.paths)),
    }
    # Position t predicts token t + 1.
    return cross[0, :, :, rows], {
        name: roll_out_decoder(own, cross[0], encoder)[rows]
        for name, encoder in paths.items()
    }


def roll_out_decoder(
    own: Float[Tensor, "L H T T"],
    cross: Float[Tensor, "L H T S"],
    encoder: Float[Tensor, "S S"],
) -> Float[Tensor, "T S"]:
    """Return how much of each input frame reaches each decoder position.

    As in rollout for self-attention, each attention is the mean over its heads,
    and half of each residual sum. A position begins with nothing of the sound.
    """
    reached = torch.zeros_like(cross[0, 0])
    for to_tokens, to_sound in zip(own.mean(1), cross.mean(1), strict=True):
        reached = (reached + to_tokens @ reached) / 2
        reached = (reached + to_sound @ encoder) / 2
    return reached / reached.sum(dim=-1, keepdim=True)


def correlate_ranks(x: Tensor, y: Tensor) -> float:
    """Return Spearman's rank correlation; equal values share a rank."""

    def rank(values: Tensor) -> Tensor:
        flat = values.flatten()
        below = (flat[:, None] > flat).sum(1)
        return below + ((flat[:, None] == flat).sum(1) - 1) / 2

    return float(torch.corrcoef(torch.stack([rank(x), rank(y)]))[0, 1])


def score_maps(
    weights: Float[Tensor, "*B T S"], heard: Heard
) -> dict[str, Float[Tensor, "*B"]]:
    """Return where the peaks and the mass of cropped weights lie.

    Returns:
        Shares of the peaks: `inside` the digit's interval; `nearest`, with the
        intervals extended to the middle of the pauses; in that of the
        `previous` digit (without the first) and of the `next` one (without the
        last); `forward`, not before the peak of the row before. And the mean
        weight inside the interval, `mass`.
    """
    times, known = find_peak_times(weights, SECONDS), heard.intervals
    near = extend_intervals(known, heard.positions * SECONDS)
    return {
        "inside": share_peaks_inside(times, known),
        "nearest": share_peaks_inside(times, near),
        "previous": share_peaks_inside(times[..., 1:], known[:-1]),
        "next": share_peaks_inside(times[..., :-1], known[1:]),
        "forward": (times.diff() >= 0).float().mean(dim=-1),
        "mass": measure_mass_inside(weights, known, SECONDS),
    }


def compare_maps(
    weights: Float[Tensor, "L H T S"], rollout: Float[Tensor, "T S"]
) -> dict[str, Float[Tensor, "L H"]]:
    """Return what can be said of a head's weights without any truth.

    Returns:
        `entropy` in nats; `similarity`, the mean cosine with the rows of the
        other heads; `rollout`, the mean cosine with those of the rollout.
    """
    L, H = weights.shape[:2]
    cosines = head_similarity(weights.flatten(0, 1)[None])
    others = (cosines.sum(dim=1) - cosines.diagonal()) / (L * H - 1)
    return {
        "entropy": entropy(weights).mean(dim=-1),
        "similarity": others.unflatten(0, (L, H)),
        "rollout": F.cosine_similarity(weights, rollout, dim=-1).mean(dim=-1),
    }


def score_order_alone(
    times: Sequence[Float[Tensor, "*B T"]], intervals: Sequence[Float[Tensor, "T 2"]]
) -> Float[Tensor, "*B"]:
    """Return the share of peaks inside intervals of the other sequences.

    A head that knows how many digits there were, but does not hear when they
    are spoken, has the same share in its own sequence.
    """
    shares = [
        share_peaks_inside(mine, theirs)
        for i, mine in enumerate(times)
        for j, theirs in enumerate(intervals)
        if i != j
    ]
    return torch.stack(shares).mean(dim=0)


def score_steady_pace(heard: Sequence[Heard]) -> float:
    """Return the share of digits that a pointer of constant speed is in."""
    shares = []
    for one in heard:
        T = len(one.intervals)
        times = (torch.arange(T) + 0.5) / T * one.positions * SECONDS
        shares.append(share_peaks_inside(times, one.intervals))
    return float(torch.stack(shares).mean())


def combine_heads(
    weights: Float[Tensor, "L H T S"], rollouts: dict[str, Tensor]
) -> dict[str, Float[Tensor, "T S"]]:
    """Return maps made of several heads, by name."""
    listed = torch.stack([weights[head] for head in ALIGNMENT_HEADS])
    return {
        "mean of the listed heads": listed.mean(dim=0),
        "mean of all heads": weights.mean(dim=(0, 1)),
        "mean of the last layer": weights[-1].mean(dim=0),
        **rollouts,
    }


def measure_heads(model: Whisper, heard: Sequence[Heard]) -> dict:
    """Return the scores of all heads, and of maps made of several heads.

    Returns:
        `heads`, the scores (L, H) by name; `combined`, by the name of the map,
        its scores; and `steady`, the share of a pointer of constant speed.
    """
    known = [one.intervals for one in heard]
    scores: list[dict[str, Tensor]] = []
    times: list[Tensor] = []
    combined: dict[str, list[dict[str, Tensor]]] = {}
    combined_times: dict[str, list[Tensor]] = {}
    for one in heard:
        full, rollouts = attend_to_digits(model, one)
        weights = crop_keys(full, one.positions)
        rollouts = {name: crop_keys(x, one.positions) for name, x in rollouts.items()}
        on_sound = full[..., : one.positions].sum(dim=-1).mean(dim=-1)
        found = score_maps(weights, one)
        found |= compare_maps(weights, rollouts["rollout"])
        scores.append(found | {"on_sound": on_sound})
        times.append(find_peak_times(weights, SECONDS))
        for name, made in combine_heads(weights, rollouts).items():
            combined.setdefault(name, []).append(score_maps(made, one))
            peaks = find_peak_times(made, SECONDS)
            combined_times.setdefault(name, []).append(peaks)
    heads = average(scores) | {"order_alone": score_order_alone(times, known)}
    return {
        "heads": heads,
        "combined": {
            name: average(rows)
            | {"order_alone": score_order_alone(combined_times[name], known)}
            for name, rows in combined.items()
        },
        "steady": score_steady_pace(heard),
    }


def average(rows: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each entry."""
    return {
        name: torch.stack([row[name] for row in rows]).mean(dim=0) for name in rows[0]
    }


SEEDS = (0, 1, 2)
CHOICE_SEED = 3  # of the digits on which the best and the worst heads are found
ABLATED, DRAWS, LIMIT = 8, 3, 16
SHOWN = ((3, 3), (2, 1), (1, 2), (3, 0))
Heads = Sequence[tuple[int, int]]


def cross_heads(heads: Heads) -> list[tuple[int, int]]:
    """Return heads as `head_edits` counts the layers of a decoder.

    In each block, self-attention comes before cross-attention.
    """
    return [(2 * layer + 1, head) for layer, head in heads]


def join_memories(heard: Sequence[Heard]) -> Float[Tensor, "B S C"]:
    """Return the encoder's states of all sequences."""
    return torch.cat([one.memory for one in heard])


@torch.no_grad()
def compute_loss(
    model: Whisper, heard: Sequence[Heard], memory: Float[Tensor, "B S C"] | None = None
) -> float:
    """Return the mean cross-entropy of the digits (nats), teacher-forced."""
    ids = torch.cat([one.ids for one in heard])
    memory = join_memories(heard) if memory is None else memory
    logits, _ = model.decoder(ids[:, :-1], memory)
    first = len(START)
    return float(F.cross_entropy(logits[:, first - 1 :].mT, ids[:, first:]))


def read_words(text: str) -> list[str]:
    """Return the words of a text; a digit in figures or letters is one word.

    "1, 2-three!" and "12 Three" are the words 1, 2 and 3.
    """
    spaced = "".join(
        f" {x} " if x.isdigit() else x if x.isalpha() else " " for x in text
    )
    names = {word: str(i) for i, word in enumerate(WORDS, 1)}
    return [names.get(word, word) for word in spaced.lower().split()]


def measure_word_errors(
    model: Whisper, tokenizer: "Tokenizer", heard: Sequence[Heard]
) -> float:
    """Return the word error rate of greedy transcriptions, as a share."""
    memory = join_memories(heard)
    found = transcribe_greedily(model.decoder, memory, START, END, LIMIT)
    said = [tuple(read_words(tokenizer.decode(ids))) for ids in found]
    wanted = [tuple(map(str, one.spoken.digits)) for one in heard]
    return symbol_error_rate(said, [[words] for words in wanted])


def measure_ablation(
    model: Whisper,
    tokenizer: "Tokenizer",
    draws: Sequence[Sequence[Heard]],
    heads: Heads,
) -> dict[str, list[float]]:
    """Return loss and word error rate of each draw without some heads.

    Returns:
        `loss` and `word_errors` with the heads' outputs set to zero, and
        `loss_mean`, the loss with their mean outputs over the draw instead.
    """
    gone = cross_heads(heads)
    found: dict[str, list[float]] = {
        name: [] for name in ("loss", "word_errors", "loss_mean")
    }
    for heard in draws:
        with ablate_heads(model.decoder, gone):
            found["loss"].append(compute_loss(model, heard))
            errors = measure_word_errors(model, tokenizer, heard)
            found["word_errors"].append(errors)
        with record_heads(model.decoder) as outputs:
            compute_loss(model, heard)
        with ablate_heads(model.decoder, gone, average_outputs(outputs)):
            found["loss_mean"].append(compute_loss(model, heard))
    return found


def choose_sets(scores: dict[str, Float[Tensor, "L H"]]) -> dict[str, Heads]:
    """Return sets of heads that are ablated together, by name."""
    L, H = scores["inside"].shape
    every = [(i, h) for i, h in product(range(L), range(H))]
    unlisted = [head for head in every if head not in ALIGNMENT_HEADS]

    def choose(name: str, count: int, sign: int = -1) -> Heads:
        ranked = sorted(every, key=lambda head: sign * float(scores[name][head]))
        return sorted(ranked[:count])

    chosen: dict[str, Heads] = {
        "none": (),
        "listed heads": ALIGNMENT_HEADS,
        "8 most often on the digit": choose("inside", ABLATED),
        "8 least often on the digit": choose("inside", ABLATED, 1),
        "2 most often on the digit": choose("inside", 2),
        "2 most often on the previous digit": choose("previous", 2),
    }
    for i in range(DRAWS):
        rng = Random(i)
        drawn = sorted(rng.sample(unlisted, ABLATED))
        chosen[f"8 unlisted heads, draw {i}"] = drawn
        chosen[f"2 heads, draw {i}"] = sorted(rng.sample(every, 2))
    return chosen | {"all heads": every}


def measure_single_ablations(
    model: Whisper, draws: Sequence[Sequence[Heard]]
) -> list[Float[Tensor, "L H"]]:
    """Return the loss without each head alone, one table for each draw."""
    L, H = model.config.blocks, model.config.heads
    tables = []
    for heard in draws:
        table, memory = torch.zeros(L, H), join_memories(heard)
        with keep_memory_projections(model.decoder):
            for i, h in product(range(L), range(H)):
                with ablate_heads(model.decoder, cross_heads([(i, h)])):
                    table[i, h] = compute_loss(model, heard, memory)
        tables.append(table)
    return tables


def list_heads(measured: Sequence[dict], losses: Sequence[Tensor]) -> list[dict]:
    """Return one row for each head: its scores, one for each draw."""
    rows = []
    for i, h in torch.cartesian_prod(
        *(torch.arange(n) for n in losses[0].shape)
    ).tolist():
        row = {"layer": i, "head": h, "listed": (i, h) in ALIGNMENT_HEADS}
        for name in measured[0]["heads"]:
            found = [float(one["heads"][name][i, h]) for one in measured]
            row[name] = [round(x, DIGITS_KEPT) for x in found]
        found = [float(table[i, h]) for table in losses]
        row["loss_without"] = [round(x, DIGITS_KEPT) for x in found]
        rows.append(row)
    return rows


PREDICTORS = (
    *("entropy", "similarity", "rollout", "on_sound"),
    *("forward", "layer", "loss_without"),
)
DIGITS_KEPT = 5  # after the point, so that nearly equal scores tie


def correlate_predictors(rows: Sequence[dict]) -> dict[str, list[float]]:
    """Return each predictor's rank correlation with `inside`, over all heads.

    One number for each draw; `layer` is the number of the head's layer.
    """
    draws = range(len(rows[0]["inside"]))

    def read(name: str, i: int) -> Tensor:
        cells = [row[name] for row in rows]
        return torch.tensor([x if name == "layer" else x[i] for x in cells])

    return {
        name: [correlate_ranks(read(name, i), read("inside", i)) for i in draws]
        for name in PREDICTORS
    }


def show_example(model: Whisper, heard: Heard) -> dict:
    """Return one sequence with the maps of some heads, in thousandths."""
    weights, _ = attend_to_digits(model, heard)
    cropped = crop_keys(weights, heard.positions)
    return {
        "digits": list(heard.spoken.digits),
        "intervals": [list(one) for one in heard.spoken.intervals],
        "seconds": len(heard.spoken.sound) / RATE,
        "maps": [
            {
                "layer": head[0],
                "head": head[1],
                "thousandths": (cropped[head] * 1000).round().int().tolist(),
            }
            for head in SHOWN
        ],
    }


def find_digit_tokens(tokenizer: "Tokenizer") -> list[int]:
    """Return the token of each digit from 1 to 9, with the space before it."""
    tokens = []
    for digit in range(1, 10):
        (token,) = tokenizer.encode(f" {digit}", add_special_tokens=False).ids
        tokens.append(token)
    return tokens


@recorded(
    on_cpu=True,
    seeds=[*SEEDS, CHOICE_SEED],
    model=f"Whisper tiny.en, float16, from {PACKAGE}, MIT",
    sha256=SHA256,
)
def whisper_digits() -> dict:
    """Record where 24 cross-attention heads look while digits are predicted.

    Each head is scored, ablated alone, and ablated in sets.

    Source: Radford et al. (2022), https://arxiv.org/abs/2212.04356; the heads for
        word times: https://github.com/openai/whisper/pull/869
    """
    model, tokenizer = load_whisper(), load_whisper_tokenizer()
    tokens = find_digit_tokens(tokenizer)
    draws = [draw_heard(model, tokens, seed) for seed in SEEDS]
    measured = [measure_heads(model, heard) for heard in draws]
    chosen = measure_heads(model, draw_heard(model, tokens, CHOICE_SEED))
    rows = list_heads(measured, measure_single_ablations(model, draws))
    sets = choose_sets(chosen["heads"])
    return {
        "heads": rows,
        "combined": [
            {"name": name}
            | {
                score: [float(one["combined"][name][score]) for one in measured]
                for score in measured[0]["combined"][name]
            }
            for name in measured[0]["combined"]
        ],
        "sets": [
            {"name": name, "heads": [list(head) for head in heads]}
            | measure_ablation(model, tokenizer, draws, heads)
            for name, heads in sets.items()
        ],
        "correlations": correlate_predictors(rows),
        "steady": [one["steady"] for one in measured],
        "sequences": SEQUENCES,
        "digits": DIGITS,
        "seconds_per_position": SECONDS,
        "example": show_example(model, draws[0][0]),
    }


COUNTS, VARIED_LIMIT, KEPT = (4, 8), 40, 8  # digits, tokens, transcriptions kept


@torch.no_grad()
def transcribe(model: Whisper, tokenizer: "Tokenizer", spoken: SpokenDigits) -> str:
    """Return the text that greedy decoding generates for one sound."""
    spectrogram = log_mel_spectrogram(spoken.sound, RATE, model.config.mels)
    memory = model.encoder(spectrogram[None])
    [ids] = transcribe_greedily(model.decoder, memory, START, END, VARIED_LIMIT)
    return tokenizer.decode(ids)


def measure_row(
    model: Whisper, tokenizer: "Tokenizer", sounds: Sequence[SpokenDigits]
) -> dict:
    """Return the word error rate, and the first transcriptions."""
    texts = [transcribe(model, tokenizer, spoken) for spoken in sounds]
    said = [tuple(read_words(text)) for text in texts]
    wanted = [[tuple(map(str, spoken.digits))] for spoken in sounds]
    return {
        "word_errors": symbol_error_rate(said, wanted),
        "said": texts[:KEPT],
        "digits": [list(spoken.digits) for spoken in sounds[:KEPT]],
    }


@recorded(
    on_cpu=True,
    seeds=[TEST_SEED + n for n in COUNTS],
    weights={"package": PACKAGE, "sha256": SHA256},
)
def whisper_varied_digits() -> dict:
    """Record Whisper's word errors on digits that vary.

    Whisper has not been trained on these sounds, and Listen, Attend and Spell on
    nothing else.

    Source: Radford et al. (2022), https://arxiv.org/abs/2212.04356
    """
    model, tokenizer = load_whisper(), load_whisper_tokenizer()
    rows = []
    for count in COUNTS:
        drawn = draw_utterances(TEST_SEED + count, TESTED, (count, count))
        sounds = [one.spoken for one in drawn]
        row = measure_row(model, tokenizer, sounds)
        rows.append({"count": count} | row)
    return {"rows": rows, "tested": TESTED}
