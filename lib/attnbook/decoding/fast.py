"""Fast products for decoding on a CPU: weights packed once, in 4, 2 or 1 bytes.

A step of decoding reads every weight and multiplies it by one number a sequence:
memory limits it. PyTorch's product of one row and a weight as it is stored reads memory
more slowly than it could (chapter 13 records by how much). Here oneDNN copies a weight
once into the blocks in which its kernel reads it; the copy serves a step, a batch, and
the few rows that speculation checks. Query, key and value come from one product, gate
and up from another.

In float32 the result is that of `CachedDecoder` up to rounding. bfloat16 rounds the
weights, and what they multiply, to 8 significant bits. int8 rounds weights to 255
steps, one scale a row of R, and what they multiply to bfloat16.

Source: the packing is that of PyTorch's compiler,
    https://github.com/pytorch/pytorch/blob/v2.11.0/torch/_inductor/mkldnn_ir.py; one
    scale a row: Dettmers et al. (2022), section 2.1, https://arxiv.org/abs/2208.07339
    (departure: only weights are quantized)
Axes: B sequences, T new symbols, C input width, R output width, V symbols
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from attnbook.attention.masked_softmax import softmax_over_keys
from attnbook.attention.multi_head import merge_heads
from attnbook.decoding.decoder import CachedDecoder, Pass
from attnbook.models.modern_decoder import (
    CachedLanguageModel,
    RotaryAttention,
    SwiGLU,
)
from attnbook.positions.rotary import apply_rotary

Product = Callable[[Tensor], Tensor]
# Rows for which oneDNN chooses its blocks. Those for 1 row serve one row no better, and
# several rows worse.
ROWS = 16


def pack_onednn(weight: Float[Tensor, "R C"]) -> Product:
    """Return x (B, C) → x weightᵀ, from blocks of a float32 or bfloat16 weight."""
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


class PackedAttention:
    """What `attend_rotary` computes, with packed weights."""

    def __init__(self, attention: RotaryAttention, dtype: torch.dtype):
        self.attention = attention
        self.heads = attention.heads, attention.groups, attention.groups
        inputs = attention.query, attention.key, attention.value
        self.project = pack_linears(dtype, *inputs)
        self.output = pack_linears(dtype, attention.output)

    def __call__(
        self, x: Float[Tensor, "B T C"], layer: int, shared: Pass
    ) -> Float[Tensor, "B T C"]:
        """Return a layer's attention of new positions, whose keys go to the cache."""
        rows = self.project(x).unflatten(-1, (sum(self.heads), -1)).transpose(1, 2)
        query, key, value = rows.split(self.heads, dim=1)
        query, key = self.attention.normalize(query, key)
        query, key = (apply_rotary(y, shared.angle) for y in (query, key))
        keys, values = shared.cache.update(layer, key, value)
        scores = self.attention.scores(query, keys)
        weights = softmax_over_keys(scores, shared.mask)
        return self.output(merge_heads(self.attention.combine(weights, values)))


class PackedSwiGLU:
    """What `SwiGLU` computes, with packed weights."""

    def __init__(self, network: SwiGLU, dtype: torch.dtype):
        self.both = pack_linears(dtype, network.gate, network.up)
        self.down = pack_linears(dtype, network.down)

    def __call__(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        """Return each position's vector, passed through the network."""
        gate, up = self.both(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class PackedDecoder(CachedDecoder):
    """A `CachedDecoder` with packed weights besides the model's: faster on a CPU.

    Embeddings, norms, multi-head latent attention and other networks than SwiGLU are
    the model's. `dtype` is that of the packed weights.

    Raises:
        ValueError: as `CachedDecoder` and `pack_weight`.
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
                self.attend[i] = PackedAttention(block.attention, dtype)
            if isinstance(block.feed_forward, SwiGLU):
                self.feed_forward[i] = PackedSwiGLU(block.feed_forward, dtype)
        self.output = pack_weight(self.table.detach(), dtype)

    @torch.no_grad()
    def predict(self, hidden: Float[Tensor, "*B C"]) -> Float[Tensor, "*B V"]:
        """Return the logits of what `run` returns."""
        return self.output(hidden)
