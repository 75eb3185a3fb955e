"""Listen, Attend and Spell: speech to letters, with attention over time.

The listener is a pyramid of recurrent layers: each layer reads neighboring vectors as
one, so that the decoder attends to few states. The speller is chapter 3's decoder with
input feeding.

Source: Chan et al. (2016), sections 3.1 and 3.2, equations 5 to 11,
    https://arxiv.org/abs/1508.01211. Departures: two layers, which read four
    frames and then two states as one, instead of one layer that reads single
    frames and three that read pairs; the two networks before the dot product
    are one matrix (`GeneralScore`); the speller has one recurrent layer instead
    of two, begins with a layer of the listener's last states, and is fed the
    attentional vector instead of the context.
Axes: B batch, F frames, C channels (mel bands), T target symbols, S states of
    the listener, M memory width, V symbols
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.recurrent import GeneralScore, GlobalAttention
from attnbook.models.recurrent import (
    EncoderDecoder,
    LuongDecoder,
    Memory,
    require_lengths,
    run_packed,
)
from attnbook.models.whisper import RATE, STEP, log_mel_spectrogram

FACTORS = (4, 2)  # how many vectors a layer of the pyramid reads as one
BANDS = 40  # mel bands of a frame
LIMIT = 3000  # frames
SECONDS = math.prod(FACTORS) * STEP / RATE  # for which a state stands: 0.08


def compute_frames(sound: Float[Tensor, "N"], rate: int) -> Float[Tensor, "F C"]:
    """Return the log-mel frames of a sound, one every 10 ms, without padding.

    Args and errors as in `log_mel_spectrogram`.
    """
    seconds = max(1, math.ceil(len(sound) / RATE))
    frames = log_mel_spectrogram(sound, rate, BANDS, seconds).T
    return frames[: math.ceil(len(sound) / STEP)]


def join_neighbors(
    frames: Float[Tensor, "B F C"], factor: int
) -> Float[Tensor, "B S _"]:
    """Return each group of `factor` neighbors as one vector.

    S is F / factor, rounded up: the last group is padded with zeros.
    """
    if factor < 1:
        raise ValueError(f"a group has at least 1 frame, not {factor}")
    missing = -frames.shape[1] % factor
    padded = F.pad(frames, (0, 0, 0, missing))
    return padded.unflatten(1, (-1, factor)).flatten(2)


class Listener(nn.Module):
    """A pyramid of bidirectional LSTMs: each direction `hidden` wide, the memory 2x."""

    def __init__(self, channels: int, hidden: int):
        super().__init__()
        self.width, self.factors = 2 * hidden, FACTORS
        widths = [channels] + [2 * hidden] * (len(FACTORS) - 1)
        self.layers = nn.ModuleList(
            nn.LSTM(n * width, hidden, batch_first=True, bidirectional=True)
            for n, width in zip(FACTORS, widths, strict=True)
        )

    def forward(
        self, frames: Float[Tensor, "B F C"], lengths: Int[Tensor, " B"]
    ) -> Memory:
        """Return a state for each group of frames; errors as in `require_lengths`."""
        require_lengths(frames, lengths, LIMIT)
        positions = torch.arange(frames.shape[1], device=lengths.device)
        real = positions < lengths[:, None]
        states = frames.masked_fill(~real[:, :, None], 0.0)
        last = states
        for factor, layer in zip(FACTORS, self.layers, strict=True):
            states = join_neighbors(states, factor)
            lengths = (lengths + factor - 1) // factor
            states, last = run_packed(layer, states, lengths)
        return Memory(states, last, lengths)


def make_listen_attend_spell(
    channels: int,
    symbols: int,
    hidden: int = 64,
    embedding: int = 32,
    decoder: int = 128,
    dropout: float = 0.0,
) -> EncoderDecoder:
    """Return a listener and a decoder that attends to its states.

    `channels` is C, `symbols` V; the others are the widths of each direction of the
    listener, of a symbol's vector and of the decoder's state, and the dropout.
    """
    listener = Listener(channels, hidden)
    width = listener.width
    speller = LuongDecoder(
        symbols,
        embedding,
        decoder,
        width,
        GlobalAttention(GeneralScore(decoder, width)),
        nn.LSTM,
        dropout,
        feeding=True,
    )
    return EncoderDecoder(listener, speller)
