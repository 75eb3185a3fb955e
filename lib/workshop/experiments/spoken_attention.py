"""Cross-attention of a speech recognizer while it predicts spoken digits.

The digits follow each other after random pauses. The model is given the right
transcription (teacher forcing), one token per digit, and the row of weights
with which it predicts a digit is compared with the time at which this digit is
spoken. The weights on the 30 seconds are cropped to the length of the sound, as
Whisper's authors do for word times.

Source: weights for word times: `find_alignment` in
    https://github.com/openai/whisper/blob/main/whisper/timing.py; rollout:
    Abnar and Zuidema (2020), section 3, https://arxiv.org/abs/2005.00928
Axes: L blocks, H heads, T digits, S encoder positions
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

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
from attnbook.models.log_mel import STEP, log_mel_spectrogram
from attnbook.models.whisper import Whisper
from attnbook.models.whisper_tiny import ALIGNMENT_HEADS, START

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
    """Return a sequence of digits with the states that the encoder computes.

    Args:
        model: in evaluation mode.
        spoken: the digits.
        digits: the token of each digit from 1 to 9.
    """
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


def draw_heard(
    model: Whisper, digits: Sequence[int], seed: int, count: int = SEQUENCES
) -> list[Heard]:
    """Return the sequences of one seed."""
    rng = Random(seed)
    drawn = [draw_digits(rng, DIGITS) for _ in range(count)]
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

    Args:
        own: causal self-attention weights.
        cross: cross-attention weights.
        encoder: the rollout of the encoder.
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
    times: Sequence[Float[Tensor, "*B T"]],
    intervals: Sequence[Float[Tensor, "T 2"]],
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
