"""PyTorch's Transformer modules and ours, given the same weights.

Chapter: chapters/09_transformer
Source: none; the names are those of `torch.nn.TransformerEncoderLayer`,
    `TransformerDecoderLayer` and `MultiheadAttention`.
Axes: none
"""

from collections.abc import Iterable

import torch
from torch import nn

from attnbook.multi_head import MultiHeadAttention
from attnbook.transformer_blocks import DecoderBlock, EncoderBlock


@torch.no_grad()
def copy_attention(
    ours: MultiHeadAttention, theirs: nn.MultiheadAttention
) -> None:
    """Give ours their weights; they keep three projections in one matrix."""
    weights, biases = theirs.in_proj_weight, theirs.in_proj_bias
    for part, weight, bias in zip(
        (ours.query, ours.key, ours.value),
        weights.chunk(3),
        biases.chunk(3),
        strict=True,
    ):
        part.weight.copy_(weight)
        part.bias.copy_(bias)
    ours.output.load_state_dict(theirs.out_proj.state_dict())


def copy_block(ours: EncoderBlock | DecoderBlock, theirs: nn.Module) -> None:
    """Give a block the weights of PyTorch's layer.

    Raises:
        ValueError: if one has an attention to a memory and the other has not.
    """
    if hasattr(ours, "cross") != hasattr(theirs, "multihead_attn"):
        raise ValueError(
            f"a {type(ours).__name__} cannot have the weights of a "
            f"{type(theirs).__name__}: only one of them asks a memory"
        )
    copy_attention(ours.attention, theirs.self_attn)
    if hasattr(ours, "cross"):
        copy_attention(ours.cross, theirs.multihead_attn)
    ours.feed_forward.up.load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward.down.load_state_dict(theirs.linear2.state_dict())
    for i, residual in enumerate(ours.around, start=1):
        norm = getattr(theirs, f"norm{i}")
        residual.norm.load_state_dict(norm.state_dict())


def copy_stack(
    ours: Iterable[nn.Module],
    theirs: nn.TransformerEncoder | nn.TransformerDecoder,
) -> None:
    """Give each of our blocks the weights of their layer."""
    for block, layer in zip(ours, theirs.layers, strict=True):
        copy_block(block, layer)
