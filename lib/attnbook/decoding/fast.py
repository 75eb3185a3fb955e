"""Fast products for decoding on a CPU: weights packed once, in 4, 2 or 1 bytes.

A step of decoding reads every weight once and multiplies it by one number a sequence,
so it is as slow as memory. A plain product of one row does not reach that limit:
PyTorch stores weights in rows, which the product of a matrix and a vector reads slower
than the memory delivers them. Here oneDNN copies each weight once into the blocks in
which its kernels read it. One packed weight serves a step, a batch and the several
rows that speculation checks.

float32 computes what the plain decoder does, up to rounding. bfloat16 rounds the
weights and what is multiplied by them to 8 significant bits. int8 has 255 steps a row
of weights (one scale each), and bfloat16 for the rest.

Source: the packing is that of PyTorch's compiler for CPUs,
    https://github.com/pytorch/pytorch/blob/v2.11.0/torch/_inductor/mkldnn_ir.py;
    oneDNN's blocks: https://uxlfoundation.github.io/oneDNN/dev_guide_matmul.html;
    8 bits, one scale a row: Dettmers et al. (2022), section 2.1,
    https://arxiv.org/abs/2208.07339 (departure: activations are not quantized)
Axes: B rows, C input width, R output width, V symbols
"""

from collections.abc import Callable
from copy import deepcopy

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from attnbook.decoding.decoder import CachedDecoder
from attnbook.models.modern_decoder import CachedLanguageModel

Product = Callable[[Tensor], Tensor]
# Rows for which oneDNN chooses its blocks: as fast for 1, and faster for some.
ROWS = 16


def pack_onednn(weight: Float[Tensor, "R C"], dtype: torch.dtype) -> Product:
    """Return x (B, C) → x weightᵀ, with a packed weight of this type."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype), ROWS)
    multiply = torch.ops.mkldnn._linear_pointwise
    return lambda x: multiply(x.to(dtype), packed, None, "none", [], "").to(x.dtype)


def pack_int8(weight: Float[Tensor, "R C"]) -> Product:
    """Return x (B, C) → x weightᵀ, with a weight of 8 bits and one scale a row."""
    scale = weight.abs().amax(1).clamp(min=1e-30) / 127
    codes = (weight / scale[:, None]).round().to(torch.int8)
    scale, multiply = scale.bfloat16(), torch._weight_int8pack_mm
    return lambda x: multiply(x.bfloat16(), codes, scale).to(x.dtype)


def pack(weight: Float[Tensor, "R C"], dtype: torch.dtype) -> Product:
    """Return x (B, C) → x weightᵀ, as fast as this machine can.

    Where there is no faster product (on a GPU, in float64, without oneDNN), it is the
    plain one.

    Raises:
        ValueError: if the type is none of float32, bfloat16, int8 and the weight's.
    """
    known = torch.float32, torch.bfloat16, torch.int8, weight.dtype
    if dtype not in known:
        raise ValueError(f"weights of {dtype} are none of {known}")
    weight = weight.detach()
    if dtype is torch.int8:
        return pack_int8(weight)
    if (
        weight.device.type == "cpu"
        and dtype in (torch.float32, torch.bfloat16)
        and torch.backends.mkldnn.is_available()
    ):
        return pack_onednn(weight, dtype)
    weight = weight.to(dtype)
    return lambda x: F.linear(x.to(dtype), weight).to(x.dtype)


class PackedLinear(nn.Module):
    """A linear layer whose weight is packed; for inference only."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype):
        super().__init__()
        self.out_features, self.bias = linear.out_features, linear.bias
        self.product = pack(linear.weight, dtype)

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B R"]:
        """Return x weightᵀ + bias."""
        y = self.product(x.flatten(0, -2)).unflatten(0, x.shape[:-1])
        return y if self.bias is None else y + self.bias


class PackedDecoder(CachedDecoder):
    """A cached decoder with packed weights: same arguments, same use, faster.

    Norms and embeddings are the model's own; the model is not changed.

    Args:
        model: as `CachedDecoder`.
        dtype: of the weights in products: float32, bfloat16 or int8.
    """

    def __init__(
        self,
        model: CachedLanguageModel,
        dtype: torch.dtype = torch.float32,
        window: int | None = None,
        sinks: int = 0,
    ):
        shared = {id(x): x for x in model.parameters()}
        model = deepcopy(model, shared)  # new modules, the same parameters
        super().__init__(model, window, sinks)
        for module in list(model.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.Linear):
                    setattr(module, name, PackedLinear(child, dtype))
        self.output = pack(self.table, dtype)

    @torch.no_grad()
    def predict(self, hidden: Float[Tensor, "*B C"]) -> Float[Tensor, "*B V"]:
        """Return the logits of what `run` returns."""
        return self.output(hidden.flatten(0, -2)).unflatten(0, hidden.shape[:-1])
