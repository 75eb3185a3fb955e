"""Which inputs the Triton kernels take, and the warning where they do not.

Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E value width
"""

import warnings
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from attnbook.flash.sizes import find_gpu_limit

NVIDIA = "the Triton kernels need an NVIDIA GPU"
ON_CPU = NVIDIA, "tensors on the CPU"
WARNED: set[str] = set()


class FallbackWarning(UserWarning):
    """The tiled PyTorch version computes what the Triton kernels do not."""


def find_limit(
    query: Tensor, value: Tensor, strict: bool = False
) -> tuple[str, str] | None:
    """Return why the kernels cannot compute attention over such inputs.

    Returns:
        What the kernels take, and what was given instead; None where they
        can compute it.

    Raises:
        ValueError: with `strict`, if they cannot.
    """
    reason = find_device_limit(
        query.device, query.dtype, max(query.shape[-1], value.shape[-1])
    )
    if strict and reason is not None:
        raise ValueError(
            f"strict=True excludes the tiled version, but {reason[0]}, not {reason[1]}"
        )
    return reason


def find_device_limit(
    device: torch.device, dtype: torch.dtype, width: int
) -> tuple[str, str] | None:
    """Return the same for a device, a precision and the widest row."""
    if device.type == "cpu":
        return ON_CPU
    if device.type != "cuda":
        return NVIDIA, f"tensors on {device.type!r}"
    # PyTorch for AMD names its devices "cuda" as well.
    if torch.version.hip is not None:
        return NVIDIA, f"an AMD GPU ({torch.cuda.get_device_name(device)})"
    if not has_triton():
        return "the Triton kernels need the package triton", "a missing one"
    return find_gpu_limit(torch.cuda.get_device_capability(device), dtype, width)


@cache
def has_triton() -> bool:
    """Return whether Triton is installed, without importing it."""
    return find_spec("triton") is not None


def warn_once(limit: str, given: str, function: str = "flash_attention") -> None:
    """Warn that the tiled version computes this, once for each limit.

    Tensors on the CPU give no warning: no GPU is expected to compute there.
    """
    known = f"{function}: {limit}"
    if (limit, given) == ON_CPU or known in WARNED:
        return
    WARNED.add(known)
    warnings.warn(
        f"{known}, not {given}. The tiled PyTorch version "
        "computes this call and all others like it: the same function, more "
        "slowly. strict=True raises an error instead.",
        FallbackWarning,
        stacklevel=2,
    )
