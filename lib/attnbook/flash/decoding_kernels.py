"""The decoding kernels, and how they are launched.

One program takes all query heads that share a head of keys, as the rows of one
tile (packed grouped heads): each key is loaded once for all of them. It
processes one part of the keys (split-KV), because one query a head gives too
few programs for a GPU. The second kernel merges the parts as
`attnbook.attention.tiled.merge` does, all of them at once.

Source: as `attnbook.flash.decoding`
Axes: B batch, H heads, G groups (key-value heads), S keys, D width of query and
    key, E value width; `each` query heads share a head of keys; a page has PAGE
    positions
"""

from dataclasses import replace

import torch
import triton
import triton.language as tl
from torch import Tensor

from attnbook.flash import launch
from attnbook.flash.decoding import MOST_PARTS, choose_part_size, count_keys
from attnbook.flash.sizes import TileSizes, require_gpu
from attnbook.flash.tile import head_pointer, key_length, load, store


@triton.jit
def load_from_pages(
    base, table, strides, g, first, count, pages,
    PAGE: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Load the rows of some positions, each from its page of the pool."""
    columns = first + tl.arange(0, ROWS)
    exist = columns < count
    numbers = tl.load(table + columns // PAGE, mask=exist, other=0)
    # The host does not read a table that is on a GPU: bounded here, no number
    # leads to memory outside the pool.
    numbers = tl.minimum(tl.maximum(numbers, 0), pages - 1)
    inside = columns % PAGE
    rows = head_pointer(base, strides, numbers, g)
    rows += tl.cast(inside, tl.int64) * strides[2]
    lanes = tl.arange(0, LANES)[None, :]
    valid = exist[:, None]
    if WIDTH != LANES:
        valid = valid & (lanes < WIDTH)
    return tl.load(rows[:, None] + lanes, mask=valid, other=0.0)


@triton.jit
def load_rows(
    base, table, strides, b, g, first, count, pages,
    PAGE: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Load some keys or values of a sequence, with a block table or without."""
    if table is None:
        head = head_pointer(base, strides, b, g)
        rows = load(head, first, count, strides[2], ROWS, WIDTH, LANES)
    else:
        rows = load_from_pages(
            base, table, strides, g, first, count, pages, PAGE, ROWS, WIDTH,
            LANES,
        )  # fmt: skip
    return rows


@triton.jit(do_not_specialize=("S", "groups", "each", "parts", "chunk", "pages"))
def attend_part(
    query, key, value, output, lse, lengths, table,
    query_strides, key_strides, value_strides,
    S, groups, each, parts, chunk, pages, scale,
    D: tl.constexpr, E: tl.constexpr, PAGE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Compute the attention of a group's queries to one part of its keys."""
    part = tl.program_id(0) % parts
    tile = tl.program_id(0) // parts
    tiles = tl.cdiv(each, ROWS)
    bg = tile // tiles
    b, g = bg // groups, bg % groups
    # The tile has the heads first ... stop - 1 at most.
    first, stop = g * each + tile % tiles * ROWS, (g + 1) * each
    head = head_pointer(query, query_strides, b, 0)
    queries = load(head, first, stop, query_strides[2], ROWS, D, BLOCK_D)
    if table is not None:
        table += tl.cast(b, tl.int64) * tl.cdiv(S, PAGE)
    begin = part * chunk
    end = tl.minimum(begin + chunk, key_length(lengths, b, S))
    maximum = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    result = tl.zeros([ROWS, BLOCK_E], tl.float32)
    for start in range(begin, end, BLOCK_S):
        keys = load_rows(
            key, table, key_strides, b, g, start, end, pages, PAGE, BLOCK_S, D,
            BLOCK_D,
        )  # fmt: skip
        scores = tl.dot(queries, keys.T) * scale
        columns = (start + tl.arange(0, BLOCK_S))[None, :]
        scores = tl.where(columns < end, scores, float("-inf"))
        highest = tl.maximum(maximum, tl.max(scores, 1))
        # Where all scores are -inf, -inf - -inf would be NaN.
        finite = tl.where(highest == float("-inf"), 0.0, highest)
        factor = tl.exp2(maximum - finite)
        exponentials = tl.exp2(scores - finite[:, None])
        total = total * factor + tl.sum(exponentials, 1)
        values = load_rows(
            value, table, value_strides, b, g, start, end, pages, PAGE, BLOCK_S,
            E, BLOCK_E,
        )  # fmt: skip
        result = result * factor[:, None]
        result = tl.dot(exponentials.to(values.dtype), values, result)
        maximum = highest
    divisor = tl.where(total == 0.0, 1.0, total)
    result = result / divisor[:, None]
    # Both outputs are contiguous: (B, H, parts, E) and (B, H, parts).
    heads = tl.cast(b, tl.int64) * groups * each
    output += (heads * parts + part) * E
    store(result, output, first, stop, parts * E, ROWS, E, BLOCK_E)
    # A natural logarithm, as `merge` expects.
    sums = (maximum + tl.log2(divisor)) * 0.6931471805599453
    rows = first + tl.arange(0, ROWS)
    tl.store(lse + (heads + rows) * parts + part, sums, mask=rows < stop)


@triton.jit(do_not_specialize=("parts",))
def merge_parts(
    output, lse, merged, parts,
    E: tl.constexpr, PARTS: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    """Merge the parts of one head of one sequence."""
    bh = tl.program_id(0).to(tl.int64)
    each = tl.arange(0, PARTS)
    sums = tl.load(lse + bh * parts + each, mask=each < parts, other=float("-inf"))
    outputs = load(output + bh * parts * E, 0, parts, E, PARTS, E, BLOCK_E)
    highest = tl.max(sums, 0)
    finite = tl.where(highest == float("-inf"), 0.0, highest)
    shares = tl.exp2((sums - finite) * 1.4426950408889634)
    total = tl.sum(shares, 0)
    shares = shares / tl.where(total == 0.0, 1.0, total)
    result = tl.sum(outputs * shares[:, None], 0)
    store(result[None, :], merged + bh * E, 0, 1, E, 1, E, BLOCK_E)


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
    # (B, 1, H, D): the heads are the rows of a tile.
    query = launch.make_rows_contiguous(query.transpose(1, 2))
    key, value = map(launch.make_rows_contiguous, (key, value))
    (B, _, H, D), (_, G, page, E) = query.shape, value.shape
    S = count_keys(key, table)
    if tile is None:
        capability = torch.cuda.get_device_capability(query.device)
        tile = choose_decoding_tile_sizes(capability, query.dtype, max(D, E), H // G)
    tiles = triton.cdiv(H // G, tile.queries)
    parts = parts or choose_parts(query.device, B * G * tiles, S)
    size = choose_part_size(S, parts, tile.keys)
    parts = triton.cdiv(S, size)
    # Several parts are in single precision; after one, nothing is to be merged.
    dtype = query.dtype if parts == 1 else torch.float32
    output = launch.allocate(query, B, H, parts, E, dtype=dtype)
    lse = launch.allocate(query, B, H, parts, dtype=torch.float32)
    lengths, table = (
        None if x is None else x.to(torch.int32).contiguous() for x in (lengths, table)
    )
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
    return output if parts == 1 else merge(output, lse, query.dtype)


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
    """Return into how many parts the keys of so many tiles are split on a GPU.

    It depends on S, for the lengths are on the GPU and are not read.
    """
    count = torch.cuda.get_device_properties(device).multi_processor_count
    wanted = triton.cdiv(PROGRAMS * count, tiles)
    return max(1, min(wanted, keys // LEAST_KEYS, MOST_PARTS))


def choose_decoding_tile_sizes(
    capability: tuple[int, int], dtype: torch.dtype, width: int, each: int
) -> TileSizes:
    """Return the tile sizes where `each` query heads share a head of keys.

    The other arguments and the errors are those of `choose_tile_sizes`.
    """
    require_gpu(capability, dtype, width)
    if capability < (8, 0):
        return TURING
    sizes = TABLE[next(w for w in TABLE if width <= w)]
    rows = max(LEAST_ROWS, triton.next_power_of_2(each))
    return replace(sizes, queries=min(rows, sizes.queries))
