"""The decoding kernels, compiled on the CPU for GPUs that are not there."""

import re
from functools import cache

import pytest
import torch

from attnbook.flash.sizes import SHARED
from kernel_runs import COMPILED

pytestmark = COMPILED
# In no table of shared memory: the tiles are those of a GPU with 99 KB.
UNLISTED = (10, 3), (11, 0), (12, 1)
PAGE = 16
# How warps share a product, and the tiles that are copied to shared memory.
SHARES = r"#mma\d* = .*?warpsPerCTA = (\[[\d, ]+\])"
BUFFERS = r"local_alloc :.*?memdesc<(\d+)x\d+x\d+xb?f16"


@cache
def compiled(capability, D, kind, each, paged, parts=3):
    """Return each kernel's code, how warps share its products, and buffers.

    Args:
        capability: of the GPU.
        D: width of query, key and value.
        kind: name of the precision.
        each: query heads that share a head of keys.
        paged: whether the cache is in pages.
        parts: into how many the keys are split.
    """
    import compiling
    from attnbook.flash import decoding_kernels

    dtype, groups = getattr(torch, kind), 2
    query = torch.empty(2, groups * each, 1, D, dtype=dtype)
    shape = (64, groups, PAGE) if paged else (2, groups, 512)
    key = torch.empty(*shape, D, dtype=dtype)
    table = torch.zeros(2, 32, dtype=torch.int32) if paged else None
    lengths = torch.tensor([512, 100], dtype=torch.int32)
    tile = decoding_kernels.choose_decoding_tile_sizes(capability, dtype, D, each)
    with compiling.compile_for(capability) as made:
        decoding_kernels.decode(query, key, key, lengths, table, 0.1, parts, tile)
        return [
            (
                compiling.describe_kernel(name, kernel),
                re.findall(SHARES, kernel.asm["ttgir"]),
                re.findall(BUFFERS, kernel.asm["ttgir"]),
            )
            for name, kernel in made
        ]


# Every architecture; on one of them a cache in one piece, and the widest rows.
WHERE = [((7, 5), 64, "float16", 4, True)]
WHERE += [(c, 128, "bfloat16", 4, True) for c in (*SHARED, *UNLISTED) if c >= (8, 0)]
WHERE += [((9, 0), 64, "float16", 1, False), ((9, 0), 256, "float16", 32, True)]


@pytest.mark.parametrize(("capability", "D", "kind", "each", "paged"), WHERE)
def test_decoding_kernels_fit_the_gpu_load_ahead_and_multiply_nothing_twice(
    capability, D, kind, each, paged
):
    (attend, shares, buffers), (merge, *_) = compiled(capability, D, kind, each, paged)
    for code in attend, merge:
        assert code.shared <= SHARED.get(capability, 99 * 1024)
        assert code.spilled == 0, code.kernel
    # Triton multiplies without tensor cores on a T4.
    assert ("mma.sync" in attend.ptx) == (capability >= (8, 0))
    assert ("cp.async" in attend.ptx) == (capability >= (8, 0))
    # One tile of keys and one of values are on their way, two in use.
    assert buffers == (["2", "2"] if capability >= (8, 0) else [])
    # The four warps share the keys, not the few queries: one product each.
    assert set(shares) == ({"[1, 4]"} if capability >= (8, 0) else set())


def test_one_part_needs_no_second_kernel():
    ((code, *_),) = compiled((9, 0), 128, "bfloat16", 4, True, parts=1)
    assert code.kernel == "attend_part"
    assert code.spilled == 0


def test_as_many_parts_as_there_may_be_are_merged_in_registers():
    import compiling
    from attnbook.flash import decoding_kernels
    from attnbook.flash.decoding import MOST_PARTS

    output = torch.empty(2, 4, MOST_PARTS, 256)
    lse = torch.empty(2, 4, MOST_PARTS)
    with compiling.compile_for((8, 0)) as made:
        decoding_kernels.merge(output, lse, torch.float16)
        (code,) = [compiling.describe_kernel(*kernel) for kernel in made]
    assert code.spilled == 0


@pytest.mark.refusal
def test_inputs_that_a_gpu_does_not_support_are_refused():
    from attnbook.flash.decoding_kernels import choose_decoding_tile_sizes

    for given, message in (
        (((7, 5), torch.bfloat16, 64, 1), "take float16, not bfloat16"),
        (((9, 0), torch.float16, 257, 1), "up to 256 wide, not 257"),
    ):
        with pytest.raises(ValueError, match=message):
            choose_decoding_tile_sizes(*given)


class FakeGpu:
    multi_processor_count = 132


@pytest.mark.parametrize(
    ("tiles", "keys", "parts"),
    [
        (256, 8192, 5),  # 1,280 programs for 132 multiprocessors
        (8, 32 * 1024, 64),  # no more than 64
        (8, 4096, 16),  # 256 keys in each
        (8, 100, 1),
        (10_000, 8192, 1),  # enough programs without a split
    ],
)
def test_parts_are_as_many_as_occupy_the_gpu(monkeypatch, tiles, keys, parts):
    from attnbook.flash.decoding_kernels import choose_parts

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: FakeGpu)
    assert choose_parts(torch.device("cuda"), tiles, keys) == parts


def test_a_launch_reads_no_number_of_a_tensor(monkeypatch):
    """On the device "meta" no length and no page number can be read."""
    from triton.runtime.jit import JITFunction

    from attnbook.flash import decoding_kernels
    from attnbook.flash.sizes import TileSizes

    grids = []
    monkeypatch.setattr(
        JITFunction,
        "__getitem__",
        lambda _, grid: lambda *a, **k: grids.append(grid),
    )
    B, H, G, parts = 2, 40, 2, 3
    query, pool = (
        torch.empty(*shape, dtype=torch.float16, device="meta")
        for shape in ((B, H, 1, 64), (9, G, PAGE, 64))
    )
    table, lengths = (
        torch.empty(*shape, dtype=torch.int64, device="meta")
        for shape in ((B, 4), (B,))
    )
    for rows, tiles in ((32, 1), (16, 2)):
        output = decoding_kernels.decode(
            query, pool, pool, lengths, table, 0.1, parts,
            TileSizes(rows, 16, 4, 1),
        )  # fmt: skip
        assert output.shape == (B, H, 1, 64)
        # The 20 heads of a group are the rows of one tile, or of two.
        attend, merge = grids
        grids.clear()
        assert attend == (B * G * tiles * 2,)
        assert merge == (B * H,)
