"""The Triton kernels, compiled on the CPU for GPUs that are not there."""

import re
from dataclasses import replace

import pytest
import torch

from attnbook.flash.options import Options
from attnbook.flash.sizes import SHARED, choose_tile_sizes
from kernel_runs import COMPILED

pytestmark = COMPILED
# One of each generation, and one in no table: its tiles are those of a GPU with
# 99 KB of shared memory for a program.
CAPABILITIES = (8, 0), (9, 0), (10, 0), (11, 0), (12, 0)
# Bytes of a thread: what the kernels of 12.0 spill at a width of 64.
SPILLED = 128
PRODUCTS = "mma.sync", "wgmma.mma_async", "tcgen05.mma"


def compile_pass(capability, way, D, packed=None):
    """Return each kernel's code, after a check that it fits and spills little.

    With all options, if `packed` says whether sequences are packed.
    """
    import compiling

    given = compiling.make_inputs(D, B=1 if packed else 2)
    more = {"options": Options(causal=True)}
    if packed is not None:
        more = compiling.choose_everything(packed)
    codes = compiling.compile_pass(capability, way, given, **more)
    for code in codes:
        assert code.shared <= SHARED.get(capability, 99 * 1024)
        assert code.spilled <= SPILLED, code.kernel
    return codes


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
    allowed = list_products(capability, way, D)
    for code in compile_pass(capability, way, D):
        used = {x for x in PRODUCTS if x in code.ptx}
        assert used <= allowed and bool(used) == bool(allowed), code.kernel
        # The next tile is loaded while one is multiplied, if two have room.
        assert ("cp.async" in code.ptx) == (code.stages > 1), code.kernel


@pytest.mark.parametrize("way", ["forward", "backward"])
@pytest.mark.parametrize("packed", [False, True], ids=["lengths", "packed"])
@pytest.mark.parametrize(
    ("capability", "D"), [((7, 5), 64), *((c, 256) for c in CAPABILITIES)]
)
def test_all_options_together_fit_the_widest_rows(capability, D, packed, way):
    assert compile_pass(capability, way, D, packed)


@pytest.mark.parametrize("capability", [(9, 0), (10, 0), (12, 0)])
def test_descriptors_copy_whole_tiles_where_they_are_chosen(capability):
    """By itself, `choose_tile_sizes` chooses them on 10.0 only."""
    import compiling

    given, options = compiling.make_inputs(128), Options(causal=True)
    tile = choose_tile_sizes("forward", capability, torch.float16, 128)
    assert tile.descriptors == (capability == (10, 0))
    for descriptors in False, True:
        chosen = replace(tile, descriptors=descriptors)
        (code,) = compiling.compile_pass(capability, "forward", given, options, chosen)
        assert ("cp.async.bulk.tensor" in code.ptx) == descriptors
        assert code.shared <= SHARED[capability] and code.spilled <= SPILLED


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
    for code in codes:
        assert code.shared <= SHARED.get(capability, 99 * 1024)
        assert code.spilled <= 8, code.kernel  # that by Triton 3.6 only
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
