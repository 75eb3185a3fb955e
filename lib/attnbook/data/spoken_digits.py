"""Spoken digits whose boundaries are known, because we put them there.

Nine recordings of one voice, "one" to "nine", are cut to the part that is not
silent and placed on a silent track, with a pause of random length before each.
Speed, loudness and noise can vary as well. The voice and the recordings are
always the same: such sounds test alignment, not the recognition of new voices.

Source: Debian package asterisk-core-sounds-en-wav 1.6.1, recorded by Allison
    Smith, CC-BY-SA-3.0, see files/spoken_digits/README.md
Axes: N samples
"""

import io
import wave
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from attnbook.data import read_file

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RATE = 16_000  # samples per second of what is returned; the files have half
FRAME = 80  # samples of a file whose power is compared: 10 ms
QUIET = 1e-4  # below this share of the largest power, a frame is silent
PAUSES = (0.2, 1.4)  # seconds before a digit: the shortest and the longest
SHORT_PAUSES = (0.05, 0.8)  # of digits that vary
SPEEDS = (0.8, 1.25)  # of digits that vary, relative to the recording
GAINS = (0.3, 1.0)  # factors of the amplitude of digits that vary
NOISES = (0.001, 0.01)  # standard deviations of the noise under them


@dataclass(frozen=True)
class SpokenDigits:
    """A sequence of digits as sound."""

    sound: Float[Tensor, "N"]  # between -1 and 1, `RATE` samples per second
    digits: tuple[int, ...]  # what is said, from 1 to 9
    intervals: tuple[tuple[float, float], ...]  # begin and end of each, seconds

    @property
    def words(self) -> tuple[str, ...]:
        """The digits as words."""
        return tuple(WORDS[digit - 1] for digit in self.digits)


def trim_silence(sound: Float[Tensor, "N"]) -> Float[Tensor, "_"]:
    """Return a sound from its first to its last frame that is not silent.

    Samples after the last whole frame are dropped.
    """
    power = sound.unfold(0, FRAME, FRAME).square().mean(dim=-1)
    loud = (power > QUIET * power.max()).nonzero().flatten().tolist()
    return sound[FRAME * loud[0] : FRAME * (loud[-1] + 1)]


def double_rate(sound: Float[Tensor, "N"]) -> Float[Tensor, "M"]:
    """Return a sound with twice as many samples and the same frequencies."""
    spectrum = torch.fft.rfft(sound.double())
    if len(sound) % 2 == 0:  # the highest frequency is then there twice
        spectrum[-1] /= 2
    wide = F.pad(spectrum, (0, len(sound) + 1 - len(spectrum)))
    return torch.fft.irfft(2 * wide, n=2 * len(sound)).to(sound.dtype)


@cache
def load_recordings() -> tuple[Tensor, ...]:
    """Return "one" to "nine" without silence, `RATE` samples per second.

    Raises:
        ValueError: if a file is missing, or is another one.
    """
    return tuple(double_rate(trim_silence(_read_recording(i))) for i in range(1, 10))


def _read_recording(digit: int) -> Float[Tensor, "N"]:
    """Return the samples of a digit's file: one channel of 16 bits."""
    with wave.open(io.BytesIO(read_file(f"spoken_digits/{digit}.wav"))) as file:
        samples = bytearray(file.readframes(file.getnframes()))
    return torch.frombuffer(samples, dtype=torch.int16).float() / 2**15


def change_speed(sound: Float[Tensor, "N"], speed: float) -> Float[Tensor, "_"]:
    """Return a sound played faster or slower, which also changes its pitch.

    A speed of 2 halves the number of samples and doubles all frequencies.
    """
    samples = max(1, round(len(sound) / speed))
    found = F.interpolate(sound[None, None], samples, mode="linear", align_corners=True)
    return found[0, 0]


def join_digits(
    digits: Sequence[int],
    pauses: Sequence[float],
    vary: Callable[[Tensor], Tensor] | None = None,
) -> SpokenDigits:
    """Return digits one after the other.

    Args:
        digits: from 1 to 9.
        pauses: seconds of silence before each digit.
        vary: maps a recording to the sound that takes its place.

    Raises:
        ValueError: if a digit has no recording, or there are not as many
            pauses as digits.
    """
    wrong = [digit for digit in digits if not 1 <= digit <= 9]
    if wrong:
        raise ValueError(f"there is no recording of {wrong[0]}, only of 1 to 9")
    if len(pauses) != len(digits):
        raise ValueError(f"{len(digits)} digits need as many pauses, not {len(pauses)}")
    recordings, parts, intervals = load_recordings(), [], []
    now = 0
    for digit, pause in zip(digits, pauses, strict=True):
        silence, spoken = round(pause * RATE), recordings[digit - 1]
        spoken = spoken if vary is None else vary(spoken)
        parts += [spoken.new_zeros(silence), spoken]
        begin = now + silence
        now = begin + len(spoken)
        intervals.append((begin / RATE, now / RATE))
    return SpokenDigits(torch.cat(parts), tuple(digits), tuple(intervals))


def draw_digits(rng: Random, count: int) -> SpokenDigits:
    """Return `count` random digits after random pauses, none twice in a row."""
    digits: list[int] = []
    while len(digits) < count:
        digit = rng.randint(1, 9)
        if not digits or digit != digits[-1]:
            digits.append(digit)
    return join_digits(digits, [rng.uniform(*PAUSES) for _ in digits])


def draw_varied_digits(rng: Random, count: int, longer: float = 0.0) -> SpokenDigits:
    """Return random digits after short pauses; each varies in three ways.

    Speed and gain are drawn for each digit, and the standard deviation of
    white noise for the whole sound. A digit may occur twice in a row. `longer`
    seconds are added to one of the pauses.
    """
    digits = [rng.randint(1, 9) for _ in range(count)]
    pauses = [rng.uniform(*SHORT_PAUSES) for _ in digits]
    if longer:
        pauses[rng.randrange(count)] += longer

    def vary(sound: Tensor) -> Tensor:
        return rng.uniform(*GAINS) * change_speed(sound, rng.uniform(*SPEEDS))

    spoken = join_digits(digits, pauses, vary)
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    noise = torch.randn(len(spoken.sound), generator=generator)
    level = rng.uniform(*NOISES)
    return replace(spoken, sound=spoken.sound + level * noise)
