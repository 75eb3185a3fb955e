"""Fast products for decoding on a CPU: weights packed once, in 4, 2 or 1 bytes.

PyTorch's product of one row and a weight as it is stored reads memory more slowly than
it could (chapter 13 records by how much). Here oneDNN copies a weight once into the
blocks in which its kernel reads it. Query, key and value come from one product, gate
and up from another.

In float32 the result is that of `CachedDecoder` up to rounding. bfloat16 rounds the
weights, and what they multiply, to 8 significant bits. int8 rounds weights to 255
steps, one scale a row of R, and what they multiply to bfloat16.

Source: the packing is that of PyTorch's compiler,
    https://github.com/pytorch/pytorch/blob/v2.11.0/torch/_inductor/mkldnn_ir.py; one
    scale a row: Dettmers et al. (2022), section 3.1, https://arxiv.org/abs/2208.07339
    (departure: only weights are quantized)
Axes: B sequences, T new symbols, C input width, R output width, V symbols
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from attnbook.decoding.decoder import CachedDecoder, attend_rotary
from attnbook.models.modern_decoder import (
    CachedLanguageModel,
    RotaryAttention,
    SwiGLU,
)

Product = Callable[[Tensor], Tensor]
# Rows for which oneDNN chooses its blocks. Those for 1 row serve one row no better, and
# several rows worse.
ROWS = 16


def pack_onednn(weight: Float[Tensor, "R C"]) -> Product:
    """Return x (B, C) → x weightᵀ."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
    multiply = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: multiply(x, packed, None, "none", [], "")


def pack_int8(weight: Float[Tensor, "R C"]) -> Product:
    """Return x (B, C) → x weightᵀ for bfloat16, with codes of 8 bits."""
    scale = (weight.abs().amax(1) / 127).clamp(min=1e-30).bfloat16()
    codes = (weight / scale[:, None]).round().clamp(-127, 127).to(torch.int8)
    missing = -codes.shape[1] % 32  # the kernel reads 32 columns at a time
    codes = F.pad(codes, (0, missing))
    return lambda x: torch._weight_int8pack_mm(F.pad(x, (0, missing)), codes, scale)


def pack_weight(
    weight: Float[Tensor, "R C"], dtype: torch.dtype, bias: Tensor | float = 0.0
) -> Product:
    """Return x (..., C) → x weightᵀ + bias (..., R), with a weight of this type.

    On a GPU, in float64 and without oneDNN, the product is the plain one.

    Raises:
        ValueError: if the type is none of float32, bfloat16, int8 and the weight's.
    """
    known = torch.float32, torch.bfloat16, torch.int8, weight.dtype
    if dtype not in known:
        raise ValueError(f"weights of {dtype} are none of {known}")
    on_cpu = weight.device.type == "cpu" and torch.backends.mkldnn.is_available()
    single = torch.bfloat16 if dtype is torch.int8 else dtype  # of one number of x
    if dtype is torch.int8:
        product = pack_int8(weight)
    elif on_cpu and dtype in (torch.float32, torch.bfloat16):
        product = pack_onednn(weight.to(dtype))
    else:
        product = partial(F.linear, weight=weight.to(dtype))

    def multiply(x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B R"]:
        y = product(x.flatten(0, -2).to(single)).to(x.dtype)
        return y.unflatten(0, x.shape[:-1]) + bias

    return multiply


def pack_linears(dtype: torch.dtype, *linears: nn.Linear) -> Product:
    """Return one product with the outputs of several layers side by side."""
    weight = torch.cat([x.weight.detach() for x in linears])
    biases = [x.bias.detach() for x in linears if x.bias is not None]
    return pack_weight(weight, dtype, torch.cat(biases) if biases else 0.0)


def pack_attention(attention: RotaryAttention, dtype: torch.dtype) -> Callable:
    """Return `attend_rotary` with packed weights."""
    heads = attention.heads, attention.groups, attention.groups
    inputs = pack_linears(dtype, attention.query, attention.key, attention.value)

    def project(x: Float[Tensor, "B T C"]) -> tuple[Tensor, ...]:
        rows = inputs(x).unflatten(-1, (sum(heads), -1)).transpose(1, 2)
        return rows.split(heads, dim=1)

    output = pack_linears(dtype, attention.output)
    return partial(attend_rotary, attention, project, output)


def pack_swiglu(network: SwiGLU, dtype: torch.dtype) -> Product:
    """Return the network with packed weights."""
    both = pack_linears(dtype, network.gate, network.up)
    down = pack_linears(dtype, network.down)

    def multiply(x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        gate, up = both(x).chunk(2, dim=-1)
        return down(F.silu(gate) * up)

    return multiply


class PackedDecoder(CachedDecoder):
    """A `CachedDecoder` with packed weights besides the model's: faster on a CPU.

    Embeddings, norms, multi-head latent attention and other networks than SwiGLU are
    the model's. `dtype` is that of the packed weights, and refused as by `pack_weight`.
    """

    def __init__(
        self,
        model: CachedLanguageModel,
        dtype: torch.dtype = torch.float32,
        window: int | None = None,
        sinks: int = 0,
    ):
        super().__init__(model, window, sinks)
        for i, block in enumerate(model.blocks):
            if isinstance(block.attention, RotaryAttention):
                self.attend[i] = pack_attention(block.attention, dtype)
            if isinstance(block.feed_forward, SwiGLU):
                self.feed_forward[i] = pack_swiglu(block.feed_forward, dtype)
        self.output = pack_weight(self.table.detach(), dtype)
