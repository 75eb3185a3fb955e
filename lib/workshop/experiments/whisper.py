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

from attnbook.data.spoken_digits import RATE, SpokenDigits, draw_digits
from attnbook.diagnose.intervals import (
    crop_keys,
    extend_intervals,
    find_peak_times,
    measure_mass_inside,
    share_peaks_inside,
)
from attnbook.diagnose.rollout import attention_rollout
from attnbook.diagnose.weights import entropy, head_similarity
from attnbook.models.attention_maps import record_weights
from attnbook.models.head_edits import ablate_heads
from attnbook.models.log_mel import STEP, log_mel_spectrogram
from attnbook.models.whisper import (
    Whisper,
    keep_memory_projections,
)
from attnbook.models.whisper_tiny import (
    ALIGNMENT_HEADS,
    PACKAGE,
    SHA256,
    START,
    load_whisper,
    load_whisper_tokenizer,
)
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
) -> tuple[Float[Tensor, "L H T S"], Float[Tensor, "T S"]]:
    """Return the cross-attention weights with which digits are predicted.

    Returns:
        The weights of each head, and the rollout from the sound to the
        prediction. Both are on all encoder positions.
    """
    layers = [block.attention for block in model.decoder.blocks]
    with record_weights(layers) as kept:
        _, cross = model.decoder(heard.ids, heard.memory)
    rows = slice(len(START) - 1, -1)  # position t predicts token t + 1
    rollout = roll_out_decoder(torch.cat(kept), cross[0], heard.paths)
    return cross[0, :, :, rows], rollout[rows]


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


def measure_heads(model: Whisper, heard: Sequence[Heard]) -> dict:
    """Return the scores of all heads, and those of rollout.

    Returns:
        `heads`, the scores (L, H) by name; `rollout`, the scores by name.
    """
    scores, rollouts, times = [], [], []
    for one in heard:
        full, rollout = attend_to_digits(model, one)
        weights, rollout = (crop_keys(x, one.positions) for x in (full, rollout))
        on_sound = full[..., : one.positions].sum(dim=-1).mean(dim=-1)
        found = score_maps(weights, one) | compare_maps(weights, rollout)
        scores.append(found | {"on_sound": on_sound})
        rollouts.append(score_maps(rollout, one))
        times.append(find_peak_times(weights, SECONDS))
    order_alone = score_order_alone(times, [one.intervals for one in heard])
    return {
        "heads": average(scores) | {"order_alone": order_alone},
        "rollout": average(rollouts),
    }


def average(rows: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each entry."""
    return {
        name: torch.stack([row[name] for row in rows]).mean(dim=0) for name in rows[0]
    }


SEEDS = (0, 1, 2)
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


def find_digit_tokens(tokenizer: "Tokenizer") -> list[int]:
    """Return the token of each digit from 1 to 9, with the space before it."""
    tokens = []
    for digit in range(1, 10):
        (token,) = tokenizer.encode(f" {digit}", add_special_tokens=False).ids
        tokens.append(token)
    return tokens


@recorded(
    on_cpu=True,
    seeds=SEEDS,
    model=f"Whisper tiny.en, float16, from {PACKAGE}, MIT",
    sha256=SHA256,
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
    measured = [measure_heads(model, heard) for heard in draws]
    rows = list_heads(measured, measure_single_ablations(model, draws))
    return {
        "heads": rows,
        "loss": [compute_loss(model, heard) for heard in draws],
        "rollout": {
            score: [float(one["rollout"][score]) for one in measured]
            for score in measured[0]["rollout"]
        },
        "correlations": correlate_predictors(rows),
        "sequences": SEQUENCES,
        "digits": DIGITS,
        "seconds_per_position": SECONDS,
    }
