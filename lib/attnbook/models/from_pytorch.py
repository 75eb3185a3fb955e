"""Copy weights from PyTorch's Transformer modules to ours.

Source: the names are those of `torch.nn.TransformerEncoderLayer`,
    `TransformerDecoderLayer` and `MultiheadAttention`.
"""

from typing import Any

import torch
from torch import nn

from attnbook.attention.multi_head import MultiHeadAttention
from attnbook.models.transformer import DecoderBlock, EncoderBlock


@torch.no_grad()
def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    """Copy the weights of PyTorch's attention, which stacks projections."""
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


def copy_block(
    ours: EncoderBlock | DecoderBlock,
    theirs: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer,
) -> None:
    """Copy the weights of PyTorch's layer to a block.

    Raises:
        ValueError: if only one of them has cross-attention.
    """
    if isinstance(ours, DecoderBlock) != isinstance(theirs, nn.TransformerDecoderLayer):
        raise ValueError(
            f"a {type(ours).__name__} cannot have the weights of a "
            f"{type(theirs).__name__}: only one of them has cross-attention"
        )
    copy_attention(ours.attention, theirs.self_attn)
    if isinstance(ours, DecoderBlock):
        theirs_cross: Any = theirs.multihead_attn
        copy_attention(ours.cross, theirs_cross)
    ours.feed_forward.up.load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward.down.load_state_dict(theirs.linear2.state_dict())
    for i, residual in enumerate(ours.residuals, start=1):
        norm = getattr(theirs, f"norm{i}")
        residual.get_submodule("norm").load_state_dict(norm.state_dict())
