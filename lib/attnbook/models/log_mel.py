"""The log-mel spectrogram that Whisper reads.

A window of 25 ms moves over the sound in steps of 10 ms. The squared magnitudes
of its Fourier transform are summed in 80 overlapping bands, which are equally
wide on the mel scale: linear up to 1,000 Hz, logarithmic above.

Source: Radford et al. (2022), section 2.2, https://arxiv.org/abs/2212.04356;
    padding, clamping and scaling are those of
    https://github.com/openai/whisper/blob/main/whisper/audio.py; the mel scale
    is that of Slaney's Auditory Toolbox, as in librosa.
Axes: N samples, M mel bands, K frequencies, F frames
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

RATE = 16_000  # samples per second
WINDOW, STEP = 400, 160  # samples: 25 ms and 10 ms
SECONDS = 30  # of what Whisper reads at once
CORNER, RATIO = 1000.0, math.log(6.4) / 27  # of the mel scale, in Hz, per mel


def hertz_to_mel(
    frequency: Float[Tensor, "*B"],
) -> Float[Tensor, "*B"]:
    """Return frequencies on the mel scale: 200/3 Hz per mel up to 1,000 Hz."""
    above = 15 + (frequency.clamp_min(CORNER) / CORNER).log() / RATIO
    return torch.where(frequency < CORNER, frequency * 3 / 200, above)


def mel_to_hertz(mel: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Return frequencies in Hz, the inverse of `hertz_to_mel`."""
    above = CORNER * ((mel - 15) * RATIO).exp()
    return torch.where(mel < 15, mel * 200 / 3, above)


def make_mel_filters(
    bands: int = 80,
    frequencies: int = WINDOW // 2 + 1,
    device: torch.device | str | None = None,
) -> Float[Tensor, "M K"]:
    """Return triangles of equal area over the frequencies from 0 to RATE / 2.

    Args:
        bands: M.
        frequencies: K.
        device: of the result.
    """
    double = torch.float64
    top = hertz_to_mel(torch.tensor(RATE / 2, dtype=double))
    corners = mel_to_hertz(torch.linspace(0, 1, bands + 2, dtype=double) * top)
    f = torch.linspace(0, RATE / 2, frequencies, dtype=double)
    left, middle, right = (corners[i : bands + i, None] for i in range(3))
    rising = (f - left) / (middle - left)
    falling = (right - f) / (right - middle)
    triangles = torch.minimum(rising, falling).clamp_min(0)
    return (triangles * 2 / (right - left)).float().to(device)


def log_mel_spectrogram(
    sound: Float[Tensor, "N"],
    rate: int,
    bands: int = 80,
    seconds: int = SECONDS,
) -> Float[Tensor, "M F"]:
    """Return the spectrogram of a sound that is padded with silence.

    Powers below 10⁻⁸ of the largest one are raised to it; the logarithm is
    then shifted by 4 and divided by 4, so that the values are about 1.

    Args:
        sound: samples between -1 and 1.
        rate: samples per second, which must be 16,000.
        bands: M.
        seconds: the length with padding; F is 100 times as large.

    Raises:
        ValueError: on another rate, an empty sound, or one that is too long.
    """
    if rate != RATE:
        raise ValueError(
            f"the sound has {rate:,} samples per second, but the spectrogram "
            f"needs {RATE:,}"
        )
    samples = seconds * RATE
    if not 0 < len(sound) <= samples:
        raise ValueError(
            f"the sound has {len(sound):,} samples, but the spectrogram takes "
            f"1 to {samples:,}"
        )
    padded = F.pad(sound, (0, samples - len(sound)))
    window = torch.hann_window(WINDOW, device=sound.device)
    waves = torch.stft(padded, WINDOW, STEP, window=window, return_complex=True)
    power = waves[:, :-1].abs().square()
    filters = make_mel_filters(bands, len(power), sound.device)
    log = (filters @ power).clamp_min(1e-10).log10()
    return (torch.maximum(log, log.amax() - 8) + 4) / 4
