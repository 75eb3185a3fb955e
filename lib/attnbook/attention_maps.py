"""Where a Transformer looks in a whole translation: all layers, all heads.

Three kinds of maps: the encoder asks the source, the decoder asks what it has
said, and the decoder asks the source.

Chapter: chapters/09_transformer
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

from attnbook.encoder_decoder import EncoderDecoder
from attnbook.multi_head import MultiHeadAttention


class Maps(NamedTuple):
    """The weights of every attention, undropped.

    Attributes:
        encoder: each source symbol's, of the source.
        decoder: each target position's, of itself and those before it.
        cross: each target position's, of the source.
    """

    encoder: Float[Tensor, "B L H S S"]
    decoder: Float[Tensor, "B L H T T"]
    cross: Float[Tensor, "B L H T S"]


@contextmanager
def watched(attentions: Iterable[MultiHeadAttention]) -> Iterator[list[Tensor]]:
    """Collect the weights of attentions, in the order in which they work.

    Dropout is the one module that meets the weights: what it takes in are they.
    """
    seen: list[Tensor] = []

    def note(module: nn.Module, given: tuple[Tensor]) -> None:
        seen.append(given[0])

    hooks = [x.drop.register_forward_pre_hook(note) for x in attentions]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def maps(
    model: EncoderDecoder,
    source: Int[Tensor, "B S"],
    lengths: Int[Tensor, " B"],
    previous: Int[Tensor, "B T"],
) -> Maps:
    """Return the weights of all attentions of a Transformer.

    Args:
        model: a Transformer, see `attnbook.transformer`.
        source: what is translated.
        lengths: how many of its symbols are real.
        previous: what the decoder reads, the symbol of the beginning first:
            position t says the symbol after it.

    Raises:
        ValueError: if the model has no blocks to be watched.
    """
    blocks = [
        getattr(x, "blocks", None) for x in (model.encoder, model.decoder)
    ]
    if not all(blocks):
        raise ValueError(
            f"maps need an encoder and a decoder made of blocks, but these are "
            f"{type(model.encoder).__name__} and {type(model.decoder).__name__}"
        )
    groups = (
        [block.attention for block in blocks[0]],
        [block.attention for block in blocks[1]],
        [block.cross for block in blocks[1]],
    )
    with (
        watched(groups[0]) as encoder,
        watched(groups[1]) as decoder,
        watched(groups[2]) as cross,
    ):
        model(source, lengths, previous)
    return Maps(*(torch.stack(x, dim=1) for x in (encoder, decoder, cross)))
