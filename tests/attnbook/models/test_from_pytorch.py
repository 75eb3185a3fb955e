"""The Transformer's parts against PyTorch's modules with the same weights.

Forward, and backward with a random upstream gradient, to the inputs and to every
parameter.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attnbook.attention.self_attention import causal_mask
from attnbook.models.from_pytorch import copy_block
from attnbook.models.transformer import (
    DecoderBlock,
    EncoderBlock,
    PostNorm,
    PreNorm,
    Size,
    layer_norm,
)

B, T, S, C, H, HIDDEN, BLOCKS = 3, 5, 7, 12, 3, 17, 3
PAST = causal_mask(T, T)
REAL = torch.arange(S) < torch.tensor([S, 4, 2])[:, None]


class Stack(nn.Module):
    """Our blocks and what follows the last, called as PyTorch's stacks are."""

    def __init__(self, residual, block, blocks):
        super().__init__()
        self.blocks = Size(C, H, HIDDEN, blocks, residual=residual).stack(block)
        self.last = residual.make_final_norm(C)

    def forward(self, x, *more):
        for block in self.blocks:
            x = block(x, *more)
            x = x[0] if isinstance(x, tuple) else x
        return self.last(x)


def build_theirs(decodes, residual):
    """PyTorch's stack, its weights uneven."""
    first = residual is PreNorm
    more = {"dropout": 0.0, "batch_first": True, "norm_first": first}
    last = nn.LayerNorm(C) if first else None
    if decodes:
        layer = nn.TransformerDecoderLayer(C, H, HIDDEN, **more)
        stack = nn.TransformerDecoder(layer, BLOCKS, last)
    else:
        layer = nn.TransformerEncoderLayer(C, H, HIDDEN, **more)
        stack = nn.TransformerEncoder(layer, BLOCKS, last, enable_nested_tensor=False)
    with torch.no_grad():
        for x in stack.parameters():
            x.add_(0.2 * torch.randn_like(x))
    return stack.double()


def build_ours(decodes, residual, theirs):
    """Our stack with the same weights."""
    block = DecoderBlock if decodes else EncoderBlock
    stack = Stack(residual, block, len(theirs.layers)).double()
    for ours, layer in zip(stack.blocks, theirs.layers, strict=True):
        copy_block(ours, layer)
    if theirs.norm is not None:
        stack.last.load_state_dict(theirs.norm.state_dict())
    return stack


def call_theirs(stack, inputs):
    """In PyTorch's masks True = may not look."""
    if len(inputs) == 2:
        return stack(*inputs, tgt_mask=~PAST, memory_key_padding_mask=~REAL)
    return stack(*inputs, mask=~PAST, src_key_padding_mask=~REAL[:, :T])


def call_ours(stack, inputs):
    """One mask, True = can attend."""
    real = REAL[:, None, None]
    masks = (PAST, real) if len(inputs) == 2 else (PAST & real[..., :T],)
    return stack(*inputs, *masks)


def run(call, stack, inputs, upstream):
    """Return output and gradients of the inputs; those of weights in place.

    A module whose parameters have become their gradients is carried over to our
    names just as one with weights is.
    """
    inputs = [x.clone().requires_grad_() for x in inputs]
    output = call(stack, inputs)
    weights = [*stack.parameters()]
    grads = torch.autograd.grad(output, inputs + weights, upstream)
    with torch.no_grad():
        for weight, grad in zip(weights, grads[len(inputs) :], strict=True):
            weight.copy_(grad)
    return [output.detach(), *grads[: len(inputs)]]


@pytest.mark.parametrize("decodes", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("residual", [PostNorm, PreNorm])
def test_each_stack_equals_pytorchs_forward_and_backward(decodes, residual):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = build_theirs(decodes, residual)
        x, memory, upstream = (torch.randn(B, n, C).double() for n in (T, S, T))
    inputs = [x, memory] if decodes else [x]
    ours = build_ours(decodes, residual, theirs)
    found = run(call_ours, ours, inputs, upstream)
    wanted = run(call_theirs, theirs, inputs, upstream)
    torch.testing.assert_close(found, wanted)
    gradients = build_ours(decodes, residual, theirs).state_dict()
    for name, gradient in ours.state_dict().items():
        torch.testing.assert_close(gradient, gradients[name], msg=name)


def test_layer_norm_equals_pytorchs_for_small_numbers():
    rng = torch.Generator().manual_seed(0)
    x = 0.01 * torch.randn(B, T, C, generator=rng)
    gain, bias = torch.randn(2, C, generator=rng)
    wanted = F.layer_norm(x, (C,), gain, bias)
    torch.testing.assert_close(layer_norm(x, gain, bias), wanted)


@pytest.mark.refusal
def test_an_encoder_block_takes_no_decoder_layer():
    theirs = nn.TransformerDecoderLayer(C, H, HIDDEN, batch_first=True)
    with pytest.raises(ValueError, match="only one of them has cross-attention"):
        copy_block(EncoderBlock(C, H, HIDDEN), theirs)
