"""The Triton kernels, compiled on the CPU for GPUs that are not there."""

import ast
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

from attnbook import flash
from attnbook.flash.options import Options
from attnbook.flash.sizes import SHARED, choose_tile_sizes

pytestmark = [
    pytest.mark.exact("compiles kernels and runs none of them"),
    pytest.mark.kernel,
    pytest.mark.skipif(
        sys.platform != "linux",
        reason="Triton is only made for Linux: its kernels were not compiled",
    ),
]
LATER = (8, 0), (8, 9), (9, 0)
WIDTHS = {(7, 5): (64,)} | dict.fromkeys(LATER, (64, 128, 256))
PLAIN = Options(causal=True)


@cache
def compiled(capability, way, D=64, kind="float16", options=PLAIN, **shapes):
    import compiling

    given = compiling.make_inputs(D, dtype=getattr(torch, kind), **shapes)
    return compiling.compile_pass(capability, way, given, options)


def kind_of(capability, D):
    """Both half precisions, in turn, where there are two."""
    return "bfloat16" if capability >= (8, 0) and D != 128 else "float16"


def assert_good(code, capability, product):
    """Assert that it fits, keeps its numbers in registers, and multiplies so.

    Args:
        code: of a kernel.
        capability: of the GPU.
        product: the instruction that multiplies matrices.
    """
    assert code.shared <= SHARED[capability]
    assert code.spilled == 0, code.kernel
    for other in ("mma.sync", "wgmma.mma_async"):
        assert (other in code.ptx) == (other == product), code.kernel


def product_of(capability, way, D):
    """Return how matrices are multiplied there; None: number by number.

    Triton left the T4's tensor cores. A group of four warps multiplies 64 rows
    at least, which is more than backwards fit beside rows of 256 numbers.
    """
    if capability == (7, 5):
        return None
    if capability == (9, 0) and (way, D) != ("backward", 256):
        return "wgmma.mma_async"
    return "mma.sync"


@pytest.mark.parametrize("way", ["forward", "backward"])
@pytest.mark.parametrize(
    ("capability", "D"), [(c, D) for c, some in WIDTHS.items() for D in some]
)
def test_kernels_fit_the_gpu_and_use_its_matrix_instructions(
    capability, D, way
):
    codes = compiled(capability, way, D, kind_of(capability, D))
    assert len(codes) == (1 if way == "forward" else 2)
    for code in codes:
        assert_good(code, capability, product_of(capability, way, D))
        # The next tile is loaded while one is multiplied, if two have room.
        stages = choose_tile_sizes(way, capability, torch.float16, D).stages
        assert ("cp.async" in code.ptx) == (stages > 1), code.kernel


LENGTHS, SLOPES = torch.tensor([256, 100]), torch.ones(4)
# Every option, with others, and both half precisions at two widths.
OTHERS = {
    "full": (128, "bfloat16", Options(softcap=30.0, key_lengths=LENGTHS)),
    "alibi": (64, "float16", Options(window=64, alibi_slopes=SLOPES)),
    "all": (
        128,
        "float16",
        Options(True, 64, LENGTHS, SLOPES, softcap=30.0),
    ),
}
WHERE = [(c, name) for c in ((7, 5), *LATER) for name in OTHERS]
# Of these two, tiles are those of another; only the assembler differs.
WHERE += [((8, 6), "all"), ((8, 7), "all")]


@pytest.mark.parametrize("way", ["forward", "backward"])
@pytest.mark.parametrize(("capability", "name"), WHERE)
def test_every_option_compiles_for_every_architecture(capability, name, way):
    D, kind, options = OTHERS[name]
    if capability == (7, 5):
        D, kind = 64, "float16"
    for code in compiled(capability, way, D, kind, options):
        assert_good(code, capability, product_of(capability, way, D))


ODD = {
    "one of everything": {"T": 1, "S": 1, "H": 1, "G": 1, "B": 1},
    "one query, 131 keys": {"T": 1, "S": 131, "H": 8, "G": 2},
    "rows of no power of two": {"D": 80, "E": 48},
}


@pytest.mark.parametrize("name", ODD)
def test_odd_shapes_compile(name):
    """Triton compiles anew where a number is 1, or no multiple of 16."""
    (code,) = compiled((8, 9), "forward", **ODD[name])
    assert_good(code, (8, 9), "mma.sync")


@pytest.mark.parametrize("name", ["forward", "backward"])
def test_a_kernel_can_be_read(name):
    """Forwards 80 lines in all, backwards 80 each."""
    path = Path(flash.__file__).with_name(f"{name}.py")
    lines = {
        node.name: node.end_lineno - node.lineno + 2
        for node in ast.parse(path.read_text("utf8")).body
        if isinstance(node, ast.FunctionDef)
    }
    assert (sum if name == "forward" else max)(lines.values()) <= 80
