"""A small encoder-decoder and its source sequences, for several tests."""

import torch
from torch import nn

from attnbook.models.recurrent import (
    BahdanauDecoder,
    Decoder,
    Encoder,
    EncoderDecoder,
)

B, S, T, V, W = 3, 7, 5, 11, 13  # all primes: no axis stands in for another
LENGTHS = torch.tensor([7, 2, 1])


def make_sources():
    rng = torch.Generator().manual_seed(0)
    tokens = torch.randint(4, V, (B, S), generator=rng)
    return tokens.masked_fill(torch.arange(S) >= LENGTHS[:, None], 0)


def make_model(recurrent=nn.GRU, attention=False, directions=2):
    torch.manual_seed(0)
    encoder = Encoder(V, 6, 4, directions, recurrent, limit=S)
    kind, more = (BahdanauDecoder, (2,)) if attention else (Decoder, ())
    decoder = kind(V, 6, 10, encoder.width, 3, *more, recurrent=recurrent)
    return EncoderDecoder(encoder, decoder).eval()
