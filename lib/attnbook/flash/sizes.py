"""Tile sizes by GPU and width: what fits its shared memory and registers.

Chapter: chapters/11_flash_attention
Source: shared memory a block: CUDA C++ Programming Guide, table of compute
    capabilities, https://docs.nvidia.com/cuda/cuda-c-programming-guide/
Axes: none
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Sizes:
    """Of a tile, and of the group of threads that works on it.

    Attributes:
        queries, keys: rows and columns of a tile.
        warps: groups of 32 threads in a program.
        stages: tiles that are being loaded or used at the same time.
    """

    queries: int
    keys: int
    warps: int
    stages: int


# compute capability -> bytes of shared memory that one program may have
SHARED = {
    (7, 5): 64 * 1024,
    (8, 0): 163 * 1024,
    (8, 6): 99 * 1024,
    (8, 7): 163 * 1024,
    (8, 9): 99 * 1024,
    (9, 0): 227 * 1024,
}
# On a T4 Triton multiplies without tensor cores: small tiles, one at a time.
# With none of these does a kernel run out of registers: a test compiles them.
TURING = {"forward": Sizes(32, 32, 4, 1), "backward": Sizes(32, 32, 8, 1)}
# way, roomy shared memory or little -> widest row -> sizes
TABLE = {
    ("forward", "hopper"): {
        64: Sizes(128, 128, 8, 2),
        128: Sizes(128, 128, 8, 2),
        256: Sizes(128, 64, 8, 2),
    },
    ("forward", "roomy"): {
        64: Sizes(128, 64, 8, 2),
        128: Sizes(64, 64, 4, 2),
        256: Sizes(64, 32, 8, 2),
    },
    ("forward", "small"): {
        64: Sizes(128, 64, 8, 2),
        128: Sizes(64, 64, 4, 2),
        256: Sizes(64, 32, 8, 1),
    },
    ("backward", "hopper"): {
        64: Sizes(64, 128, 8, 2),
        128: Sizes(64, 64, 8, 2),
        256: Sizes(32, 32, 8, 1),
    },
    ("backward", "roomy"): {
        64: Sizes(32, 64, 4, 2),
        128: Sizes(64, 64, 8, 2),
        256: Sizes(32, 32, 8, 1),
    },
    ("backward", "small"): {
        64: Sizes(32, 64, 4, 2),
        128: Sizes(32, 64, 8, 2),
        256: Sizes(32, 32, 8, 1),
    },
}


def family(capability: tuple[int, int]) -> str:
    """Return which column of the table a GPU reads."""
    if capability[0] == 9:
        return "hopper"
    room = SHARED.get(capability, 99 * 1024)
    return "roomy" if room >= 163 * 1024 else "small"


def sizes(
    way: str, capability: tuple[int, int], dtype: torch.dtype, width: int
) -> Sizes:
    """Return the tile sizes for a GPU, a precision and the widest row.

    Args:
        way: "forward" or "backward".
        capability: of the GPU, as (major, minor).
        dtype: of query, key and value.
        width: the larger of D and E.

    Raises:
        ValueError: if the kernels do not run there with these.
    """
    name = f"compute capability {capability[0]}.{capability[1]}"
    if capability < (7, 5):
        raise ValueError(f"the kernels need 7.5 or later, but this is {name}")
    turing = capability < (8, 0)
    kinds = (torch.float16,) if turing else (torch.float16, torch.bfloat16)
    if dtype not in kinds:
        told = " or ".join(str(k)[6:] for k in kinds)
        raise ValueError(
            f"with {name} the kernels take {told}, not {str(dtype)[6:]}"
        )
    widest = 64 if turing else 256
    if width > widest:
        raise ValueError(
            f"with {name} the kernels take rows up to {widest} wide, "
            f"not {width}"
        )
    if turing:
        return TURING[way]
    table = TABLE[way, family(capability)]
    return next(table[w] for w in table if width <= w)
