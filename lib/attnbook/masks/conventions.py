"""Four ways to write one mask down, and the way from each to each.

A mask does not say which way it is written: zeros everywhere are "look at
everything" as additive mask, and "look at nothing" as ones. So the caller
names the convention, always.

Chapter: chapters/07_masks
Source: PyTorch's `F.scaled_dot_product_attention` ("keep" or "additive") and
    `nn.MultiheadAttention` ("drop" or "additive"),
    https://docs.pytorch.org/docs/stable/; Hugging Face's tokenizers give
    "ones"
Axes: T queries, S keys
"""

import math

import torch
from jaxtyping import Bool
from torch import Tensor

CONVENTIONS = {
    "keep": "boolean, True = may look",
    "drop": "boolean, True = may not look",
    "additive": "float, 0 = may look, -inf = may not",
    "ones": "number, 1 = may look, 0 = may not",
}


def read(mask: Tensor, given: str) -> Bool[Tensor, "..."]:
    """Return the mask in this book's convention: boolean, True = may look.

    Args:
        mask: a mask in the convention `given`; it is not changed.
        given: a key of CONVENTIONS.

    Raises:
        ValueError: if the mask does not keep to the convention, such as a
            bias in an additive mask or a large number in place of -inf.
    """
    known(given)
    boolean = given in ("keep", "drop")
    if boolean != (mask.dtype == torch.bool):
        raise ValueError(
            f"{given!r} means {CONVENTIONS[given]}, but the mask is "
            f"{mask.dtype}"
        )
    if boolean:
        return mask.clone() if given == "keep" else ~mask
    look, not_look = (0.0, -math.inf) if given == "additive" else (1, 0)
    strange = mask[(mask != look) & (mask != not_look)]
    if len(strange):
        raise ValueError(
            f"{given!r} means {CONVENTIONS[given]}, but the mask holds "
            f"{strange[0].item():.4g}"
        )
    return mask == look


def write(
    mask: Bool[Tensor, "..."], wanted: str, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return the mask (True = may look) in another convention.

    Args:
        mask: True = may look; it is not changed.
        wanted: a key of CONVENTIONS.
        dtype: of the numbers, where the convention has numbers.
    """
    known(wanted)
    if mask.dtype != torch.bool:
        raise ValueError(
            f"a boolean mask is wanted, True = may look, but this is "
            f"{mask.dtype}: say how it is written with `read`"
        )
    if wanted in ("keep", "drop"):
        return mask.clone() if wanted == "keep" else ~mask
    if wanted == "ones":
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(
        ~mask, -math.inf
    )


def convert(
    mask: Tensor, *, given: str, wanted: str, dtype=torch.float32
) -> Tensor:
    """Return the mask, written as `given`, as `wanted`; both must be named."""
    return write(read(mask, given), wanted, dtype)


def known(name: str) -> None:
    """Refuse the name of a convention that is none."""
    if name not in CONVENTIONS:
        raise ValueError(
            f"{name!r} is no convention; there are {', '.join(CONVENTIONS)}"
        )
