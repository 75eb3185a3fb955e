"""The Transformer's parts against PyTorch's modules with the same weights.

Forward, and backward with a random upstream gradient, to the inputs and to every
parameter.
"""

from dataclasses import dataclass
from itertools import product

import pytest
import torch
from torch import nn

from attnbook.attention.self_attention import causal_mask
from attnbook.models.from_pytorch import copy_block
from attnbook.models.transformer import (
    DecoderBlock,
    EncoderBlock,
    LayerNorm,
    PostNorm,
    PreNorm,
    Size,
)

B, T, S, C, H, HIDDEN, BLOCKS = 3, 5, 7, 12, 3, 17, 3
LENGTHS = torch.tensor([S, 4, 2])
MASKS = ("none", "causal", "padding", "both")


@dataclass(frozen=True)
class Case:
    """A part of the Transformer, and what it is given."""

    part: str
    residual: type = PostNorm
    mask: str = "none"
    size: float = 1.0
    dtype: torch.dtype = torch.float64


NORMS = (PostNorm, PreNorm)
CASES = {
    "layer norm of small numbers": Case("layer norm", size=0.1, dtype=torch.float32),
    "layer norm of large numbers": Case("layer norm", size=30.0, dtype=torch.float32),
} | {
    f"{part}, {norm.__name__}, mask: {mask}": Case(part, norm, mask)
    for part, norm, mask in (
        *product(("encoder block", "decoder block"), NORMS, MASKS),
        *product(("encoder", "decoder"), NORMS, ("both",)),
    )
}


class Stack(nn.Module):
    """Our blocks and what follows the last, called as PyTorch's stacks are."""

    def __init__(self, residual, block):
        super().__init__()
        size = Size(C, H, HIDDEN, BLOCKS, residual=residual)
        self.blocks = size.stack(block)
        self.last = residual.make_final_norm(C)

    def forward(self, x, *more):
        for block in self.blocks:
            x = block(x, *more)
            x = x[0] if isinstance(x, tuple) else x
        return self.last(x)


def theirs(case):
    """PyTorch's module of this case, its weights uneven."""
    first = case.residual is PreNorm
    more = {"dropout": 0.0, "batch_first": True, "norm_first": first}
    if case.part == "layer norm":
        module = nn.LayerNorm(C)
    elif "encoder" in case.part:
        module = nn.TransformerEncoderLayer(C, H, HIDDEN, **more)
    else:
        module = nn.TransformerDecoderLayer(C, H, HIDDEN, **more)
    last = nn.LayerNorm(C) if first else None
    if case.part == "encoder":
        module = nn.TransformerEncoder(module, BLOCKS, last, enable_nested_tensor=False)
    if case.part == "decoder":
        module = nn.TransformerDecoder(module, BLOCKS, last)
    with torch.no_grad():
        for x in module.parameters():
            x.add_(0.2 * torch.randn_like(x))
    return module


def ours(case, other):
    """Our module with the same weights, in the same precision."""
    dtype = next(other.parameters()).dtype
    block = EncoderBlock if "encoder" in case.part else DecoderBlock
    if case.part == "layer norm":
        module = LayerNorm(C).to(dtype)
        module.load_state_dict(other.state_dict())
    elif case.part.endswith("block"):
        module = block(C, H, HIDDEN, residual=case.residual).to(dtype)
        copy_block(module, other)
    else:
        module = Stack(case.residual, block).to(dtype)
        for block, layer in zip(module.blocks, other.layers, strict=True):
            copy_block(block, layer)
        if case.residual is PreNorm:
            module.last.load_state_dict(other.norm.state_dict())
    return module


def call_theirs(case, module, inputs):
    """PyTorch's call: in its masks True = may not look."""
    past = ~causal_mask(T, T) if case.mask in ("causal", "both") else None
    hidden = torch.arange(S) >= LENGTHS[:, None]
    hidden = hidden if case.mask in ("padding", "both") else None
    if case.part == "layer norm":
        return module(*inputs)
    if "decoder" in case.part:
        more = {"memory_key_padding_mask": hidden}
        return module(*inputs, tgt_mask=past, **more)
    more = {"src_key_padding_mask": None if hidden is None else hidden[:, :T]}
    name = "mask" if case.part == "encoder" else "src_mask"
    return module(*inputs, **{name: past}, **more)


def call_ours(case, module, inputs):
    """Our call: one mask, True = can attend."""
    past = causal_mask(T, T) if case.mask in ("causal", "both") else None
    real = torch.arange(S) < LENGTHS[:, None, None, None]
    real = real if case.mask in ("padding", "both") else None
    if case.part == "layer norm":
        return module(*inputs)
    if "decoder" in case.part:
        output = module(*inputs, past, real)
        return output[0] if isinstance(output, tuple) else output
    some = None if real is None else real[..., :T]
    both = some if past is None else past if some is None else past & some
    return module(*inputs, both)


def run(call, case, module, inputs, upstream):
    """Return output and gradients of the inputs; those of weights in place.

    A module whose parameters have become their gradients is carried over to our
    names just as one with weights is.
    """
    inputs = [x.clone().requires_grad_() for x in inputs]
    output = call(case, module, inputs)
    weights = [*module.parameters()]
    grads = torch.autograd.grad(output, inputs + weights, upstream)
    with torch.no_grad():
        for weight, grad in zip(weights, grads[len(inputs) :], strict=True):
            weight.copy_(grad)
    return [output.detach(), *grads[: len(inputs)]]


def collect(case, mine, results):
    names = ("output", "x", "memory")[: len(results)]
    found = dict(zip(names, results, strict=True))
    return found | {n: x.detach() for n, x in mine.named_parameters()}


@pytest.mark.parametrize("title", CASES)
def test_each_part_equals_pytorchs_forward_and_backward(title):
    case = CASES[title]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        other = theirs(case).to(case.dtype)
    x, memory, upstream = (
        case.size * torch.randn(B, n, C, generator=torch.Generator().manual_seed(n))
        for n in (T, S, T)
    )
    inputs = [x, memory] if "decoder" in case.part else [x]
    given = [x.to(case.dtype) for x in inputs], upstream.to(case.dtype)
    mine = ours(case, other)
    found = collect(case, mine, run(call_ours, case, mine, *given))
    results = run(call_theirs, case, other, *given)
    expected = collect(case, ours(case, other), results)
    assert found.keys() == expected.keys()
    for name, truth in expected.items():
        torch.testing.assert_close(
            found[name], truth, msg=lambda text, name=name: f"{name}: {text}"
        )
