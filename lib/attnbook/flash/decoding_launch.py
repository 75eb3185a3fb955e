"""Launching the decoding kernels: tile sizes, number of parts, arguments.

Axes: B batch, H heads, G groups (key-value heads), S keys, D width of query and
    key, E value width
"""

from dataclasses import replace

import torch
import triton
from torch import Tensor

from attnbook.flash import launch
from attnbook.flash.decoding_kernels import attend_part, merge_parts
from attnbook.flash.decoding_parts import choose_part_size, count_keys
from attnbook.flash.decoding_refusals import MOST_PARTS
from attnbook.flash.sizes import TileSizes, find_gpu_limit

# Widest row -> sizes. A tile has at most so many queries: a group of more heads
# has several tiles. With 3 stages one tile of keys and values is on its way
# while another is multiplied. Each of the 4 warps multiplies all queries by a
# quarter of the keys, at least 8: the width of the smallest product. A test
# reads all of this from the compiled code; no GPU has measured it.
TABLE = {
    64: TileSizes(32, 64, 4, 3),
    128: TileSizes(16, 32, 4, 3),
    256: TileSizes(16, 32, 4, 3),
}
# On a T4 Triton multiplies without tensor cores: small tiles, one at a time.
TURING = TileSizes(16, 32, 4, 1)
LEAST_ROWS = 16
# How many programs each multiprocessor receives, if the keys suffice: with few,
# many would idle while the last ones finish.
PROGRAMS = 8
# A part has at least so many keys, unless the number of parts is given.
LEAST_KEYS = 256


def decode(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Tensor | None,
    table: Tensor | None,
    scale: float,
    parts: int | None,
    tile: TileSizes | None = None,
) -> Tensor:
    """Return attention (B, H, 1, E) of one query a head."""
    G, E = key.shape[1], value.shape[-1]
    B, H = query.shape[:2]
    tile = tile or choose_tile(query, G, E)
    if parts is None:
        tiles = B * G * triton.cdiv(H // G, tile.queries)
        parts = choose_parts(query.device, tiles, count_keys(key, table))
    output, lse = attend_parts(query, key, value, lengths, table, scale, parts, tile)
    return output if output.shape[2] == 1 else merge(output, lse, query.dtype)


def attend_parts(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Tensor | None,
    table: Tensor | None,
    scale: float,
    parts: int,
    tile: TileSizes,
) -> tuple[Tensor, Tensor]:
    """Return the output (B, H, parts, E) and logsumexp (B, H, parts) of each.

    Several parts are in single precision; one part is in the query's, because
    nothing remains to be merged.
    """
    # (B, 1, H, D): the heads are the rows of a tile.
    query = launch.make_rows_contiguous(query.transpose(1, 2))
    key, value = map(launch.make_rows_contiguous, (key, value))
    (B, _, H, D), (_, G, page, E) = query.shape, value.shape
    S = count_keys(key, table)
    size = choose_part_size(S, parts, tile.keys)
    parts = triton.cdiv(S, size)
    dtype = query.dtype if parts == 1 else torch.float32
    output = launch.allocate(query, B, H, parts, E, dtype=dtype)
    lse = launch.allocate(query, B, H, parts, dtype=torch.float32)
    lengths, table = (
        None if x is None else x.to(torch.int32).contiguous() for x in (lengths, table)
    )
    tiles = triton.cdiv(H // G, tile.queries)
    # A page is loaded after its number, and each of the two needs its stages.
    stages = tile.stages if table is None else 2 * tile.stages - 1
    with torch.cuda.device_of(query):
        attend_part[(B * G * tiles * parts,)](
            query, key, value, output, lse, lengths, table,
            *map(launch.read_strides, (query, key, value)),
            S, G, H // G, parts, size, len(key), scale * launch.LOG2_E,
            D=D, E=E, PAGE=1 if table is None else page,
            ROWS=tile.queries, BLOCK_S=tile.keys,
            BLOCK_D=max(16, triton.next_power_of_2(D)),
            BLOCK_E=max(16, triton.next_power_of_2(E)),
            num_warps=tile.warps, num_stages=stages,
        )  # fmt: skip
    return output, lse


def merge(output: Tensor, lse: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the parts (B, H, parts, E) merged into one (B, H, 1, E)."""
    B, H, parts, E = output.shape
    merged = launch.allocate(output, B, H, 1, E, dtype=dtype)
    with torch.cuda.device_of(output):
        merge_parts[(B * H,)](
            output, lse, merged, parts, E=E,
            PARTS=triton.next_power_of_2(parts),
            BLOCK_E=max(16, triton.next_power_of_2(E)),
            num_warps=4,
        )  # fmt: skip
    return merged


def choose_parts(device: torch.device, tiles: int, keys: int) -> int:
    """Return into how many parts the keys are split on a GPU.

    Args:
        device: the GPU.
        tiles: the number of programs without a split.
        keys: S; the lengths are on the GPU and are not read.
    """
    count = torch.cuda.get_device_properties(device).multi_processor_count
    wanted = triton.cdiv(PROGRAMS * count, tiles)
    return max(1, min(wanted, keys // LEAST_KEYS, MOST_PARTS))


def choose_tile(query: Tensor, groups: int, E: int) -> TileSizes:
    """Return the tile sizes on the GPU that holds the query."""
    return choose_decoding_tile_sizes(
        torch.cuda.get_device_capability(query.device),
        query.dtype,
        max(query.shape[-1], E),
        query.shape[1] // groups,
    )


def choose_decoding_tile_sizes(
    capability: tuple[int, int], dtype: torch.dtype, width: int, each: int
) -> TileSizes:
    """Return the tile sizes for a GPU, a precision, and grouped heads.

    Args:
        capability: of the GPU, as (major, minor).
        dtype: of query, key and value.
        width: the larger of D and E.
        each: the number of query heads that share a head of keys.

    Raises:
        ValueError: if the kernels do not run there with these.
    """
    reason = find_gpu_limit(capability, dtype, width)
    if reason is not None:
        raise ValueError(f"{reason[0]}, not {reason[1]}")
    if capability < (8, 0):
        return TURING
    sizes = TABLE[next(w for w in TABLE if width <= w)]
    rows = max(LEAST_ROWS, triton.next_power_of_2(each))
    return replace(sizes, queries=min(rows, sizes.queries))
