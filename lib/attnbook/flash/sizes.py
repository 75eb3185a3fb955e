"""Tile sizes by GPU and width, and which inputs the Triton kernels take.

Source: shared memory a block: CUDA C++ Programming Guide, table of compute
    capabilities, https://docs.nvidia.com/cuda/cuda-c-programming-guide/
"""

import warnings
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class TileSizes:
    """Sizes of a tile, and of the group of threads that computes it.

    Attributes:
        queries, keys: rows and columns of a tile.
        warps: groups of 32 threads in a program.
        stages: tiles that are being loaded or used at the same time.
        descriptors: whether the tensor memory accelerator, which GPUs from 9.0 on
            have, copies whole tiles of keys and values; only forwards.
    """

    queries: int
    keys: int
    warps: int
    stages: int
    descriptors: bool = False


# compute capability -> bytes of shared memory that one program may have
SHARED = {
    (7, 5): 64 * 1024,
    (8, 0): 163 * 1024,
    (8, 6): 99 * 1024,
    (8, 7): 163 * 1024,
    (8, 9): 99 * 1024,
    (9, 0): 227 * 1024,
    (10, 0): 227 * 1024,
    (12, 0): 99 * 1024,
}
# A test compiles these and reads the code: no kernel spills more than 128 bytes
# of a thread, none computes a product twice.
# A warp multiplies at least 16 rows: those of a tile of queries, and in the
# kernel of the gradients of keys and values, of keys. With fewer than 16 rows a
# warp, several warps compute the same product. Below 9.0 the warps divide the
# rows only if a tile has as many rows as columns, and as a row has numbers.
# With 3 stages one tile is on its way while another is multiplied; with 2 a
# copy begins when the last product begins, and the next product waits for it.
# On a T4 Triton multiplies without tensor cores: small tiles, one at a time.
# From 10.0 to 11.0, matrix products are added up in a memory of their own.
# With larger tiles, kernels for rows 128 wide spill registers there. With
# descriptors they need up to 35 fewer; on 9.0 as many, on 12.0 more.
# kernel -> GPUs -> the arguments of `TileSizes` for rows up to each width
WIDTHS = 64, 128, 256
TABLE: dict[str, dict[str, Any]] = {
    "forward": {
        "turing": [(32, 32, 4, 1)],
        "small": [(128, 64, 4, 3), (128, 32, 8, 3), (64, 64, 8, 1)],
        "roomy": [(128, 64, 4, 3), (128, 64, 8, 3), (64, 64, 8, 2)],
        "hopper": [(128, 128, 8, 3), (128, 128, 8, 3), (128, 64, 8, 2)],
        "tensor memory": [(128, 64, 8, 2, True), (64, 64, 4, 2, True), (64, 32, 8, 1)],
    },
    "key_value_gradient": {
        "turing": [(32, 32, 8, 1)],
        "small": [(32, 128, 8, 3), (16, 128, 8, 2), (32, 16, 4, 1)],
        "roomy": [(32, 128, 8, 3), (64, 64, 8, 3), (64, 32, 8, 2)],
        "hopper": [(64, 128, 8, 3), (32, 128, 8, 3), (64, 32, 8, 2)],
        "tensor memory": [(32, 64, 4, 2), (32, 64, 8, 2), (32, 32, 8, 1)],
    },
    "query_gradient": {
        "turing": [(32, 32, 8, 1)],
        "small": [(128, 64, 8, 3), (128, 32, 8, 2), (32, 32, 4, 1)],
        "roomy": [(128, 64, 8, 3), (128, 32, 8, 3), (32, 64, 8, 2)],
        "hopper": [(128, 64, 8, 3), (128, 64, 8, 3), (32, 64, 8, 2)],
        "tensor memory": [(32, 64, 4, 2), (32, 64, 8, 2), (32, 32, 8, 1)],
    },
}
# A soft-cap or a bias needs additional registers.
BIASED: dict[tuple[str, str, int], Any] = {
    ("forward", "roomy", 64): (128, 64, 8, 3),
    ("forward", "small", 64): (128, 64, 8, 3),
    ("forward", "roomy", 128): (128, 32, 8, 3),
    ("forward", "tensor memory", 64): (128, 32, 8, 2),
    ("forward", "tensor memory", 128): (64, 32, 4, 2),
    ("key_value_gradient", "small", 64): (16, 128, 8, 3),
    ("key_value_gradient", "roomy", 128): (16, 128, 8, 3),
    ("key_value_gradient", "roomy", 256): (64, 16, 8, 2),
}


def find_gpu_family(capability: tuple[int, int]) -> str:
    """Return which tile sizes of the table a GPU uses."""
    if capability < (8, 0):
        return "turing"
    if capability[0] in (9, 10, 11):
        return "hopper" if capability[0] == 9 else "tensor memory"
    shared = SHARED.get(capability, 99 * 1024)
    return "roomy" if shared >= 163 * 1024 else "small"


def find_gpu_limit(
    capability: tuple[int, int], dtype: torch.dtype, width: int
) -> tuple[str, str] | None:
    """Return what the kernels take on an NVIDIA GPU, and what was given instead.

    Or None where they run: `width` is the larger of D and E.
    """
    number = f"{capability[0]}.{capability[1]}"
    if capability < (7, 5):
        return "the kernels need compute capability 7.5 or later", number
    name = f"with compute capability {number} the kernels take"
    turing = capability < (8, 0)
    dtypes = (torch.float16,) if turing else (torch.float16, torch.bfloat16)
    if dtype not in dtypes:
        names = " or ".join(str(k)[6:] for k in dtypes)
        return f"{name} {names}", str(dtype)[6:]
    widest = 64 if turing else 256
    if width > widest:
        return f"{name} rows up to {widest} wide", str(width)
    return None


def require_gpu(capability: tuple[int, int], dtype: torch.dtype, width: int) -> None:
    """Raise ValueError if the kernels do not run on a GPU with such inputs."""
    reason = find_gpu_limit(capability, dtype, width)
    if reason is not None:
        raise ValueError(f"{reason[0]}, not {reason[1]}")


def choose_tile_sizes(
    kernel: str,
    capability: tuple[int, int],
    dtype: torch.dtype,
    width: int,
    biased: bool = False,
) -> TileSizes:
    """Return the tile sizes for a GPU, a precision and the widest row.

    Args:
        kernel: "forward", "key_value_gradient" or "query_gradient".
        capability: of the GPU, as (major, minor).
        width: the larger of D and E.
        biased: whether the scores have a soft-cap or a bias.

    Raises:
        ValueError: if the kernels do not run there with these.
    """
    require_gpu(capability, dtype, width)
    family, place = find_gpu_family(capability), bisect_left(WIDTHS, width)
    found = TABLE[kernel][family][place]
    if biased:
        found = BIASED.get((kernel, family, WIDTHS[place]), found)
    return TileSizes(*found)


NVIDIA = "the Triton kernels need an NVIDIA GPU"
ON_CPU = NVIDIA, "tensors on the CPU"
WARNED: set[str] = set()


class FallbackWarning(UserWarning):
    """The tiled PyTorch version computes what the Triton kernels do not."""


def find_limit(
    query: Tensor, value: Tensor, strict: bool = False
) -> tuple[str, str] | None:
    """Return the same as `find_gpu_limit`; with `strict`, raise ValueError for it."""
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
