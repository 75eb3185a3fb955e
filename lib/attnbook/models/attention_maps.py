"""Attention maps of a Transformer: the weights of all layers and heads.

There are three kinds of maps: encoder self-attention, decoder self-attention,
and cross-attention from the decoder to the source.

Source: Vaswani et al. (2017), section 3.2.3 (the three uses of attention),
    https://arxiv.org/abs/1706.03762
Axes: B batch, L blocks, H heads, S source symbols, T target symbols
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.models.encoder_decoder import EncoderDecoder


class TransformerMaps(NamedTuple):
    """The weights of every attention, before dropout.

    Attributes:
        encoder: encoder self-attention.
        decoder: causal decoder self-attention.
        cross: cross-attention to the source.
    """

    encoder: Float[Tensor, "B L H S S"]
    decoder: Float[Tensor, "B L H T T"]
    cross: Float[Tensor, "B L H T S"]


@contextmanager
def record_weights(
    attentions: Iterable[MultiHeadAttention],
) -> Iterator[list[Tensor]]:
    """Collect the weights of attentions, in the order in which they run.

    Each attention passes its weights to a dropout module, whose input is
    recorded.
    """
    recorded: list[Tensor] = []

    def record(module: nn.Module, given: tuple[Tensor]) -> None:
        recorded.append(given[0])

    hooks = [x.drop.register_forward_pre_hook(record) for x in attentions]
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def collect_maps(
    model: EncoderDecoder,
    source: Int[Tensor, "B S"],
    lengths: Int[Tensor, " B"],
    previous: Int[Tensor, "B T"],
) -> TransformerMaps:
    """Return the weights of all attentions of a Transformer.

    Args:
        model: a Transformer, see `attnbook.models.transformer`.
        source: the source sequences.
        lengths: how many of its symbols are real.
        previous: the decoder's input, beginning with the start symbol:
            position t predicts the symbol after it.

    Raises:
        ValueError: if the encoder or the decoder has no blocks.
    """
    encoders = getattr(model.encoder, "blocks", None)
    decoders = getattr(model.decoder, "blocks", None)
    if not encoders or not decoders:
        raise ValueError(
            f"maps need an encoder and a decoder made of blocks, but these are "
            f"{type(model.encoder).__name__} and {type(model.decoder).__name__}"
        )
    groups = (
        [block.attention for block in encoders],
        [block.attention for block in decoders],
        [block.cross for block in decoders],
    )
    with (
        record_weights(groups[0]) as encoder,
        record_weights(groups[1]) as decoder,
        record_weights(groups[2]) as cross,
    ):
        model(source, lengths, previous)
    return TransformerMaps(*(torch.stack(x, dim=1) for x in (encoder, decoder, cross)))
