"""How long a fused kernel takes, predicted from what it has to do.

Counted are the products of tiles, whole tiles where a mask covers a part of
them; one exponential a score; the other instructions a score, in single
precision; and the bytes of inputs and results. Each has a ceiling. If all of
them are busy at the same time, the slowest decides; a single program in a
multiprocessor alternates between products and softmax instead, and their times
add up. A measured time is expected between the two, or above them for what is
not counted: addresses, copies from the cache, and waiting.

Source: three ceilings and their alternation: section 3 of FlashAttention-3,
    Shah et al. (2024), https://arxiv.org/abs/2407.08608; limits of a
    multiprocessor: CUDA C++ Programming Guide, table of compute capabilities,
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E of values
"""

from dataclasses import dataclass

from attnbook.profiling.presets import DEVICES, EXPONENTIAL_RATES, PROCESSORS
from attnbook.profiling.sizes import Sizes

REGISTERS = 64 * 1024
# compute capability -> shared memory of a multiprocessor, and its most warps
MULTIPROCESSORS = {
    (7, 5): (64 * 1024, 32),
    (8, 0): (164 * 1024, 64),
    (8, 6): (100 * 1024, 48),
    (8, 9): (100 * 1024, 48),
    (9, 0): (228 * 1024, 64),
}


@dataclass(frozen=True)
class Kernel:
    """What a kernel does for each score, and what it moves.

    Attributes:
        to_width: products of (rows, D) tiles.
        to_values: products of (rows, E) tiles.
        instructions: a score, besides its exponential: multiply-adds,
            maxima, sums, and half of a conversion, which takes two numbers.
        own_keys: whether a program owns keys and walks over the queries;
            queries and keys otherwise.
        rescales: whether the output is multiplied in every tile.
        moved: names of inputs and results, as often as they are moved.
        sums: numbers of 4 bytes a query.
    """

    to_width: int
    to_values: int
    instructions: float
    own_keys: bool
    rescales: bool
    moved: tuple[str, ...]
    sums: int


KERNELS = {
    "forward": Kernel(
        1, 1, 3.5, False, True, ("query", "key", "value", "output"), 1
    ),
    "key_value_gradient": Kernel(
        2, 2, 4.0, True, False,
        ("query", "output", "key", "value", "key", "value"), 2,
    ),
    "query_gradient": Kernel(
        2, 1, 3.5, False, False,
        ("query", "key", "value", "output", "output", "query"), 2,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class KernelCount:
    """What one kernel does in one call.

    Attributes:
        products: operations of matrix products; a multiplication and an
            addition are two.
        exponentials: one a score.
        instructions: on other numbers in single precision.
        bytes: to and from memory.
        programs: into which the call is divided.
    """

    products: int
    exponentials: int
    instructions: float
    bytes: int
    programs: int


def count_tile_pairs(
    sizes: Sizes, rows: int, columns: int, causal: bool, own_keys: bool
) -> int:
    """Return how many tiles of scores the programs of one head compute.

    Args:
        sizes: of the call.
        rows: of the tile that a program owns.
        columns: of the tiles that it walks over.
        causal: whether tiles above the diagonal are left out.
        own_keys: whether the rows are keys and the columns queries.

    Raises:
        ValueError: if a tile is empty.
    """
    if rows < 1 or columns < 1:
        raise ValueError(f"a tile of {rows} by {columns} scores is empty")
    T, S = sizes.T, sizes.S
    total = 0
    for first in range(0, S if own_keys else T, rows):
        begin, end = 0, T if own_keys else S
        if causal and own_keys:
            begin = max(first - S + T, 0) // columns * columns
        elif causal:
            end = max(min(first + rows, T) + S - T, 0)
        total += max(-(-(end - begin) // columns), 0)
    return total


def count_kernel(
    name: str, sizes: Sizes, rows: int, columns: int, causal: bool = False
) -> KernelCount:
    """Return what a kernel does with tiles of rows by columns scores."""
    kernel, heads = KERNELS[name], sizes.B * sizes.H
    tiles = heads * count_tile_pairs(sizes, rows, columns, causal, kernel.own_keys)
    scores = tiles * rows * columns
    widths = kernel.to_width * sizes.D + kernel.to_values * sizes.E
    rescaled = tiles * rows * sizes.E if kernel.rescales else 0
    owned = sizes.S if kernel.own_keys else sizes.T
    owners = sizes.B * (sizes.G if kernel.own_keys else sizes.H)
    return KernelCount(
        2 * scores * widths,
        scores,
        scores * kernel.instructions + rescaled,
        sum(getattr(sizes, x) for x in kernel.moved)
        + kernel.sums * heads * sizes.T * 4,
        owners * -(-owned // rows),
    )


def predict_seconds(
    count: KernelCount, gpu: str, resident: int = 1, tensor: bool = True
) -> dict[str, float]:
    """Return the time by each ceiling, and what they predict together.

    Programs run in waves, as many at a time as the GPU holds; the last wave
    may leave a part of it idle.

    Args:
        count: of one kernel.
        gpu: its name in the presets, which know its published rates.
        resident: programs that a multiprocessor holds at a time.
        tensor: whether tensor cores multiply. Otherwise products and other
            instructions share the units of single precision.

    Returns:
        Seconds: "products", "exponentials", "instructions", "memory"; "least",
        if all overlap; "alternating", if products wait for the softmax and the
        softmax for them; "predicted", the former with several programs in a
        multiprocessor, the latter with one.
    """
    preset, places = DEVICES[gpu], PROCESSORS[gpu] * resident
    # A multiply-add counts as two operations, and as one instruction.
    products = count.products / preset.rates[2 if tensor else 4]
    instructions = count.instructions / (preset.rates[4] / 2)
    exponentials = count.exponentials / EXPONENTIAL_RATES[gpu]
    waves = -(-count.programs // places) * places / count.programs
    memory = count.bytes / preset.bandwidth
    units = [products, instructions, exponentials]
    least = max(units) if tensor else max(products + instructions, exponentials)
    found = {
        "products": products,
        "exponentials": exponentials,
        "instructions": instructions,
        "memory": memory,
        "least": max(least * waves, memory),
        "alternating": max(sum(units) * waves, memory),
    }
    chosen = "alternating" if resident == 1 else "least"
    return found | {"predicted": found[chosen]}


def count_resident_programs(
    capability: tuple[int, int], warps: int, registers: int, shared: int
) -> int:
    """Return how many programs of a kernel a multiprocessor holds at a time.

    Args:
        capability: of the GPU, as (major, minor).
        warps: of a program.
        registers: of a thread; a warp is given multiples of 256.
        shared: bytes of a program; the system takes 1 KB more from 8.0 on.
    """
    room, most = MULTIPROCESSORS[capability]
    of_warp = -(-32 * registers // 256) * 256
    system = 1024 if capability >= (8, 0) else 0
    return min(
        REGISTERS // of_warp // warps,
        room // (shared + system),
        most // warps,
    )
