"""Whisper: a Transformer that reads a log-mel spectrogram and generates text.

The spectrogram: a window of 25 ms moves over the sound in steps of 10 ms; the squared
magnitudes of its Fourier transform are summed in 80 overlapping bands, which are
equally wide on the mel scale: linear up to 1,000 Hz, logarithmic above. Two
convolutions halve the number of frames. Encoder and decoder are stacks of chapter 9's
pre-norm blocks.

Source: Radford et al. (2022), section 2.2, https://arxiv.org/abs/2212.04356; padding,
    clamping, scaling and GELU: https://github.com/openai/whisper; the mel scale is that
    of Slaney's Auditory Toolbox, as in librosa. Departure: key projections have a bias,
    which is zero.
Axes: N samples, M mel bands, K frequencies, F frames, B batch, S encoder positions
    (F / 2), T tokens, L blocks, H heads, C model width, V tokens known
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.self_attention import causal_mask
from attnbook.models.transformer import (
    Block,
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    LayerNorm,
    PreNorm,
)

RATE = 16_000  # samples per second
WINDOW, STEP = 400, 160  # samples: 25 ms and 10 ms
SECONDS = 30  # of what Whisper reads at once
CORNER, RATIO = 1000.0, math.log(6.4) / 27  # of the mel scale, in Hz, per mel


def hertz_to_mel(frequency: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
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
    """Return triangles of equal area over the frequencies from 0 to RATE / 2."""
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
    sound: Float[Tensor, "N"], rate: int, bands: int = 80, seconds: int = SECONDS
) -> Float[Tensor, "M F"]:
    """Return the spectrogram of a sound that is padded with silence.

    Powers below 10⁻⁸ of the largest one are raised to it; the logarithm is then shifted
    by 4 and divided by 4, so that the values are about 1.

    Args:
        sound: samples between -1 and 1.
        rate: samples per second, which must be 16,000.
        bands: M.
        seconds: the length with padding; F is 100 times as large.
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


@dataclass(frozen=True)
class WhisperConfig:
    """The sizes of a Whisper model: M, C, H, L, the largest S and T, and V.

    `hidden` is the width of the feed-forward networks.
    """

    mels: int
    width: int
    heads: int
    hidden: int
    blocks: int
    positions: int
    tokens: int
    symbols: int

    def stack(self, block: type[Block]) -> nn.ModuleList:
        """Return pre-norm blocks with GELU networks."""
        blocks = nn.ModuleList(
            block(self.width, self.heads, self.hidden, residual=PreNorm)
            for _ in range(self.blocks)
        )
        for one in blocks:
            one.feed_forward = GeluFeedForward(self.width, self.hidden)
        return blocks


class GeluFeedForward(FeedForward):
    """Position-wise feed-forward network with GELU instead of ReLU."""

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """Return each position's vector, passed through the network."""
        return self.down(self.drop(F.gelu(self.up(x))))


class WhisperEncoder(nn.Module):
    """Two convolutions over time, then self-attention blocks."""

    def __init__(self, config: WhisperConfig):
        super().__init__()
        width = config.width
        self.first = nn.Conv1d(config.mels, width, 3, padding=1)
        self.second = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.positions = nn.Parameter(torch.zeros(config.positions, width))
        self.blocks = config.stack(EncoderBlock)
        self.norm = LayerNorm(width)

    def forward(self, spectrogram: Float[Tensor, "B M F"]) -> Float[Tensor, "B S C"]:
        """Return the states, one for two frames; ValueError if they are too many."""
        most = 2 * len(self.positions)
        if spectrogram.shape[2] > most:
            raise ValueError(
                f"the spectrogram has {spectrogram.shape[2]} frames, but the "
                f"encoder has positions for {most}"
            )
        x = F.gelu(self.second(F.gelu(self.first(spectrogram)))).mT
        x = x + self.positions[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class WhisperDecoder(nn.Module):
    """Causal self-attention and cross-attention blocks; a tied output layer."""

    def __init__(self, config: WhisperConfig):
        super().__init__()
        self.embed = nn.Embedding(config.symbols, config.width)
        self.positions = nn.Parameter(torch.zeros(config.tokens, config.width))
        self.blocks = config.stack(DecoderBlock)
        self.norm = LayerNorm(config.width)

    def forward(
        self, ids: Int[Tensor, "B T"], memory: Float[Tensor, "B S C"]
    ) -> tuple[Float[Tensor, "B T V"], Float[Tensor, "B L H T S"]]:
        """Return logits of every next token, and all cross-attention weights.

        Raises:
            ValueError: if there are more tokens than positions for them.
        """
        T, most = ids.shape[1], len(self.positions)
        if most < T:
            raise ValueError(
                f"there are {T} tokens, but the decoder has positions for {most}"
            )
        x, maps = self.embed(ids) + self.positions[:T], []
        causal = causal_mask(T, T, ids.device)
        for block in self.blocks:
            x, weights = block(x, memory, causal)
            maps.append(weights)
        return self.norm(x) @ self.embed.weight.T, torch.stack(maps, dim=1)


class Whisper(nn.Module):
    """The encoder and the decoder."""

    def __init__(self, config: WhisperConfig):
        super().__init__()
        self.config = config
        self.encoder = WhisperEncoder(config)
        self.decoder = WhisperDecoder(config)

    def forward(
        self, spectrogram: Float[Tensor, "B M F"], ids: Int[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B T V"], Float[Tensor, "B L H T S"]]:
        """Return logits of every next token, and all cross-attention weights.

        `ids` are the tokens so far, the start tokens first (teacher forcing).
        """
        return self.decoder(ids, self.encoder(spectrogram))
