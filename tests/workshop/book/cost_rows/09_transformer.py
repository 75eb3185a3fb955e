"""Chapter 9: stabilized attention, and whole blocks."""

import torch

from attnbook.models.transformer import (
    DecoderBlock,
    EncoderBlock,
    PreNorm,
    QKNormAttention,
    SoftCapAttention,
)
from cost_calls import call_module, equal_lengths


def call_decoder_block(n):
    block = DecoderBlock(n.C, n.H, n.F, residual=PreNorm)
    given = torch.randn(1, n.T, n.C), torch.randn(1, n.S, n.C)
    return lambda: block(*given), block.parameters()


CALLS = {
    "with normalised queries and keys": call_module(
        lambda n: QKNormAttention(n.C, n.H)
    ),
    "soft-capped": call_module(lambda n: SoftCapAttention(n.C, n.H, 5.0)),
    "encoder block": call_module(
        lambda n: EncoderBlock(n.C, n.H, n.F, residual=PreNorm)
    ),
    "decoder block": call_decoder_block,
}
SIZES = dict.fromkeys({*CALLS} - {"decoder block"}, equal_lengths)
