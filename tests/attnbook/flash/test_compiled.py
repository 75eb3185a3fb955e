"""The Triton kernels, compiled on the CPU for GPUs that are not there."""

import re
from dataclasses import replace

import pytest
import torch

from attnbook.flash.sizes import SHARED, choose_tile_sizes
from kernel_runs import COMPILED

pytestmark = COMPILED
# One of each generation, and one in no table: its tiles are those of a GPU with
# 99 KB of shared memory for a program.
CAPABILITIES = (8, 0), (9, 0), (10, 0), (11, 0), (12, 0)
# Bytes of a thread: what the kernels of 12.0 spill at a width of 64.
SPILLED = 128
PRODUCTS = "mma.sync", "wgmma.mma_async", "tcgen05.mma"


def assert_fit(codes, capability, spilled=SPILLED):
    for code in codes:
        assert code.shared <= SHARED.get(capability, 99 * 1024)
        assert code.spilled <= spilled, code.kernel


def list_products(capability, way, D):
    """Return how matrices are multiplied there; nothing: number by number.

    Triton left the T4's tensor cores. A group of four warps multiplies 64 rows
    at least, which is more than backwards fit beside rows of 256 numbers. On 10
    and 11 it needs 64 rows, too: some kernels backwards have fewer.
    """
    if capability == (7, 5):
        return set()
    if capability == (9, 0) and (way, D) != ("backward", 256):
        return {"wgmma.mma_async"}
    if capability[0] in (10, 11):
        return {*PRODUCTS[2:]} if way == "forward" else {*PRODUCTS[::2]}
    return {"mma.sync"}


WIDTHS = [((7, 5), 64), *((c, 128) for c in CAPABILITIES), ((8, 0), 256)]


@pytest.mark.parametrize("way", ["forward", "backward"])
@pytest.mark.parametrize(("capability", "D"), WIDTHS)
def test_kernels_fit_the_gpu_and_use_its_matrix_instructions(capability, D, way):
    import compiling

    allowed = list_products(capability, way, D)
    codes = compiling.compile_pass(capability, way, D)
    assert_fit(codes, capability)
    for code in codes:
        used = {x for x in PRODUCTS if x in code.ptx}
        assert used <= allowed and bool(used) == bool(allowed), code.kernel
        # The next tile is loaded while one is multiplied, if two have room.
        assert ("cp.async" in code.ptx) == (code.stages > 1), code.kernel


@pytest.mark.parametrize("way", ["forward", "backward"])
@pytest.mark.parametrize("kind", ["all, lengths", "all, packed"])
@pytest.mark.parametrize(
    ("capability", "D"), [((7, 5), 64), *((c, 256) for c in CAPABILITIES)]
)
def test_all_options_together_fit_the_widest_rows(capability, D, kind, way):
    import compiling

    assert_fit(compiling.compile_pass(capability, way, D, kind), capability)


@pytest.mark.parametrize("capability", [(9, 0), (10, 0), (12, 0)])
def test_descriptors_copy_whole_tiles_where_they_are_chosen(capability):
    """By itself, `choose_tile_sizes` chooses them on 10.0 only."""
    import compiling

    tile = choose_tile_sizes("forward", capability, torch.float16, 128)
    assert tile.descriptors == (capability == (10, 0))
    for descriptors in False, True:
        chosen = replace(tile, descriptors=descriptors)
        codes = compiling.compile_pass(capability, "forward", 128, tile=chosen)
        assert ("cp.async.bulk.tensor" in codes[0].ptx) == descriptors
        assert_fit(codes, capability)


# Decoding.

PAGE = 16
# How warps share a product, and the tiles that are copied to shared memory.
SHARES = r"#mma\d* = .*?warpsPerCTA = (\[[\d, ]+\])"
BUFFERS = r"local_alloc :.*?memdesc<(\d+)x\d+x\d+xb?f16"


def compile_decoding(capability, D, each, paged=True, parts=3):
    """Return the code of each decoding kernel; `each` heads share a head of keys."""
    import compiling
    from attnbook.flash import decoding_kernels

    dtype, groups = torch.float16, 2
    query = torch.empty(2, groups * each, 1, D, dtype=dtype)
    shape = (64, groups, PAGE) if paged else (2, groups, 512)
    key = torch.empty(*shape, D, dtype=dtype)
    table = torch.zeros(2, 32, dtype=torch.int32) if paged else None
    lengths = torch.tensor([512, 100], dtype=torch.int32)
    tile = decoding_kernels.choose_decoding_tile_sizes(capability, dtype, D, each)
    with compiling.compile_for(capability) as made:
        decoding_kernels.decode(query, key, key, lengths, table, 0.1, parts, tile)
        codes = [compiling.describe_kernel(*kernel) for kernel in made]
    assert_fit(codes, capability, spilled=8)  # that by Triton 3.6 only
    return codes


# On one of them a cache in one piece, and the widest rows.
DECODED = [
    ((7, 5), 64, 4, True),
    ((8, 0), 128, 4, True),
    ((12, 0), 128, 4, True),
    ((9, 0), 64, 1, False),
    ((9, 0), 256, 32, True),
]


@pytest.mark.parametrize(("capability", "D", "each", "paged"), DECODED)
def test_decoding_kernels_load_ahead_and_multiply_nothing_twice(
    capability, D, each, paged
):
    attend, _ = compile_decoding(capability, D, each, paged)
    modern = capability >= (8, 0)  # Triton multiplies without tensor cores on a T4
    assert ("mma.sync" in attend.ptx) == modern
    assert ("cp.async" in attend.ptx) == modern
    # One tile of keys and one of values are on their way, two in use.
    assert re.findall(BUFFERS, attend.ttgir) == (["2", "2"] if modern else [])
    # The four warps share the keys, not the few queries: one product each.
    assert {*re.findall(SHARES, attend.ttgir)} == ({"[1, 4]"} if modern else set())
