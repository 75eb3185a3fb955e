"""Conversion between the conventions for attention masks.

A mask does not show which convention it follows: zeros everywhere mean "attend
to every key" in an additive mask, and "attend to no key" in a mask of ones. The
caller therefore always names the convention.

Source: PyTorch's `F.scaled_dot_product_attention` ("keep" or "additive") and
    `nn.MultiheadAttention` ("drop" or "additive"),
    https://docs.pytorch.org/docs/stable/; Hugging Face's tokenizers give
    "ones", and its models add up masks of the lowest number ("lowest")
Axes: T queries, S keys
"""

import math

import torch
from jaxtyping import Bool
from torch import Tensor

CONVENTIONS = {
    "keep": "boolean, True = can attend",
    "drop": "boolean, True = cannot attend",
    "additive": "float, 0 = can attend, -inf = cannot",
    "lowest": "float, 0 = can attend, the dtype's lowest number or -inf = cannot",
    "ones": "number, 1 = can attend, 0 = cannot",
}

FLOATS = torch.float16, torch.bfloat16, torch.float32, torch.float64


def read_mask(mask: Tensor, given: str) -> Bool[Tensor, "..."]:
    """Return a new mask in this book's convention: boolean, True = can attend.

    Raises:
        ValueError: if the mask does not follow the convention `given`, such as
            a bias in an additive mask or a large number in place of -inf.
    """
    check_convention(given)
    boolean = given in ("keep", "drop")
    if boolean != (mask.dtype == torch.bool):
        raise ValueError(
            f"{given!r} means {CONVENTIONS[given]}, but the mask is {mask.dtype}"
        )
    if boolean:
        return mask.clone() if given == "keep" else ~mask
    attended = 1 if given == "ones" else 0
    masked_out = (mask == 0) if given == "ones" else (mask == -math.inf)
    if given == "lowest":
        # Of any precision: the mask may have been converted since.
        lowest = [torch.finfo(x).min for x in FLOATS]
        masked_out = masked_out | torch.isin(mask, mask.new_tensor(lowest))
    invalid = mask[(mask != attended) & ~masked_out]
    if len(invalid):
        raise ValueError(
            f"{given!r} means {CONVENTIONS[given]}, but the mask holds "
            f"{invalid[0].item():.4g}"
        )
    return mask == attended


def write_mask(
    mask: Bool[Tensor, "..."], wanted: str, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return a new mask in the convention `wanted`; `mask` has True = can attend.

    `dtype` is that of the numbers, where the convention has numbers.
    """
    check_convention(wanted)
    if mask.dtype != torch.bool:
        raise ValueError(
            f"expected a boolean mask, True = can attend, but got "
            f"{mask.dtype}: convert it with `read_mask`"
        )
    if wanted in ("keep", "drop"):
        return mask.clone() if wanted == "keep" else ~mask
    if wanted == "ones":
        return mask.to(dtype)
    masked_out = torch.finfo(dtype).min if wanted == "lowest" else -math.inf
    zeros = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return zeros.masked_fill(~mask, masked_out)


def convert_mask(
    mask: Tensor, *, given: str, wanted: str, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Convert a mask from the convention `given` to the convention `wanted`."""
    return write_mask(read_mask(mask, given), wanted, dtype)


def check_convention(name: str) -> None:
    """Refuse a name that is none of the conventions'."""
    if name not in CONVENTIONS:
        raise ValueError(
            f"{name!r} is not a convention; the conventions are "
            f"{', '.join(CONVENTIONS)}"
        )
