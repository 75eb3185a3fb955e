"""Small encoder-decoders and inputs on which leaks are looked for."""

import torch
from torch import nn

from attnbook.attention import recurrent
from attnbook.attention.multi_head import MultiHeadMemory
from attnbook.models.recurrent import (
    BahdanauDecoder,
    Decoder,
    Encoder,
    EncoderDecoder,
    LuongDecoder,
)
from attnbook.models.transformer import PostNorm, Size, transformer

V, C, S, T = 5, 12, 7, 4
SOURCE = torch.tensor([[4, 2, 3, 1, 2, 4, 3], [3, 4, 2, 0, 0, 0, 0]])
LENGTHS = torch.tensor([7, 3])
PREVIOUS = torch.tensor([[1, 4, 2, 3], [1, 3, 4, 2]])
X = torch.randn(2, S, C, generator=torch.Generator().manual_seed(0))


def build_encoder_decoder(decoder, directions=2, cell=nn.GRU):
    encoder = Encoder(V, 3, C // directions, directions, cell)
    return EncoderDecoder(encoder, decoder).eval()


def build_luong(attention, **more):
    return build_encoder_decoder(LuongDecoder(V, 3, C, C, attention, **more))


def build_global(score, **more):
    return build_luong(recurrent.GlobalAttention(score), **more)


DECODERS = {
    "one vector": lambda: build_encoder_decoder(Decoder(V, 3, C, C, 3)),
    "one vector, LSTM": lambda: build_encoder_decoder(
        Decoder(V, 3, C, C, 3, recurrent=nn.LSTM), cell=nn.LSTM
    ),
    "Bahdanau": lambda: build_encoder_decoder(BahdanauDecoder(V, 3, C, C, 3, 5)),
    "Luong, dot": lambda: build_global(recurrent.DotScore(C, C)),
    "Luong, general": lambda: build_global(recurrent.GeneralScore(C, C)),
    "Luong, concat": lambda: build_global(recurrent.ConcatScore(C, C, 5)),
    "Luong, location": lambda: build_global(recurrent.LocationScore(C, 10)),
    "Luong, monotonic": lambda: build_luong(
        recurrent.MonotonicAttention(recurrent.DotScore(C, C), 1)
    ),
    "Luong, predictive": lambda: build_luong(
        recurrent.PredictiveAttention(recurrent.DotScore(C, C), C, 5, 2)
    ),
    "Luong, fed": lambda: build_global(recurrent.DotScore(C, C), feeding=True),
    "Luong, heads": lambda: build_luong(MultiHeadMemory(C, C, 3)),
    "Transformer": lambda: transformer(V, V, Size(C, 3, 17, 2)).eval(),
    "Transformer, post-norm": lambda: transformer(
        V, V, Size(C, 3, 17, 2, residual=PostNorm)
    ).eval(),
}
