"""The Triton kernels, compiled on the CPU for GPUs that are not there."""

import pytest
import torch

from attnbook.flash.options import Options
from attnbook.flash.sizes import SHARED
from kernel_runs import COMPILED

pytestmark = COMPILED
# In no table: their tiles are those of a GPU with 99 KB for a program.
UNLISTED = (10, 3), (11, 0), (12, 1)
PLAIN = Options(causal=True)


def compiled(capability, way, D=64, kind="float16", options=PLAIN, **shapes):
    import compiling

    given = compiling.make_inputs(D, dtype=getattr(torch, kind), **shapes)
    return compiling.compile_pass(capability, way, given, options)


# Bytes of a thread: what the kernels of 12.0 and 12.1 spill at a width of 64.
SPILLED = 128
PRODUCTS = "mma.sync", "wgmma.mma_async", "tcgen05.mma"


def assert_good(code, capability, products):
    """Assert that it fits, spills few registers, and multiplies so.

    Args:
        code: of a kernel.
        capability: of the GPU.
        products: the instructions of which one multiplies its matrices.
    """
    assert code.shared <= SHARED.get(capability, 99 * 1024)
    assert code.spilled <= SPILLED, code.kernel
    used = {x for x in PRODUCTS if x in code.ptx}
    assert used <= {*products}, code.kernel
    assert bool(used) == bool(products), code.kernel


def products_of(capability, way, D):
    """Return how matrices are multiplied there; nothing: number by number.

    Triton left the T4's tensor cores. A group of four warps multiplies 64 rows
    at least, which is more than backwards fit beside rows of 256 numbers. On 10
    and 11 it needs 64 rows, too: some kernels backwards have fewer.
    """
    if capability == (7, 5):
        return ()
    if capability == (9, 0) and (way, D) != ("backward", 256):
        return ("wgmma.mma_async",)
    if capability[0] in (10, 11):
        return PRODUCTS[2:] if way == "forward" else PRODUCTS[::2]
    return ("mma.sync",)


# Every architecture, with the width of most language models where it takes that;
# the other widths on the two most common ones.
WIDTHS = [((7, 5), 64)]
WIDTHS += [(c, 128) for c in SHARED if c >= (8, 0)]
WIDTHS += [(c, 64) for c in UNLISTED]
WIDTHS += [(c, D) for c in ((8, 0), (9, 0)) for D in (64, 256)]


@pytest.mark.parametrize(("capability", "D"), WIDTHS)
def test_kernels_fit_the_gpu_and_use_its_matrix_instructions(capability, D):
    kind = "bfloat16" if D == 256 else "float16"
    for way in "forward", "backward":
        for code in compiled(capability, way, D, kind):
            assert_good(code, capability, products_of(capability, way, D))
            # The next tile is loaded while one is multiplied, if two have room.
            assert ("cp.async" in code.ptx) == (code.stages > 1), code.kernel


OPTIONS = {
    "soft-cap and lengths": Options(softcap=30.0, key_lengths=torch.tensor([256, 100])),
    "alibi and a window": Options(window=64, alibi_slopes=torch.ones(4)),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_compiles(name):
    for way in "forward", "backward":
        for code in compiled((8, 9), way, 64, "bfloat16", OPTIONS[name]):
            assert_good(code, (8, 9), products_of((8, 9), way, 64))


ODD = {
    "one of everything": {"T": 1, "S": 1, "H": 1, "G": 1, "B": 1},
    "one query, 131 keys": {"T": 1, "S": 131, "H": 8, "G": 2},
    "rows of no power of two": {"D": 80, "E": 48},
}


@pytest.mark.parametrize("name", ODD)
def test_odd_shapes_compile(name):
    """Triton compiles anew where a number is 1, or no multiple of 16."""
    (code,) = compiled((8, 9), "forward", **ODD[name])
    assert_good(code, (8, 9), ("mma.sync",))
