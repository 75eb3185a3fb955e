"""The Triton kernels, compiled on the CPU for GPUs that are not there."""

import ast
from functools import cache
from pathlib import Path

import pytest
import torch

from attnbook import flash
from attnbook.flash.options import Options
from attnbook.flash.sizes import SHARED
from kernel_runs import COMPILED

pytestmark = COMPILED
LATER = (8, 0), (8, 9), (9, 0)
NEWEST = (10, 0), (12, 0)
# In no table: their tiles are those of a GPU with 99 KB for a program.
UNLISTED = (10, 3), (11, 0), (12, 1)
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


PRODUCTS = "mma.sync", "wgmma.mma_async", "tcgen05.mma"


def assert_good(code, capability, products):
    """Assert that it fits, keeps its numbers in registers, and multiplies so.

    Args:
        code: of a kernel.
        capability: of the GPU.
        products: the instructions of which one multiplies its matrices.
    """
    assert code.shared <= SHARED.get(capability, 99 * 1024)
    assert code.spilled == 0, code.kernel
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


@pytest.mark.parametrize("way", ["forward", "backward"])
@pytest.mark.parametrize(
    ("capability", "D"), [(c, D) for c, some in WIDTHS.items() for D in some]
)
def test_kernels_fit_the_gpu_and_use_its_matrix_instructions(capability, D, way):
    codes = compiled(capability, way, D, kind_of(capability, D))
    assert len(codes) == (1 if way == "forward" else 2)
    for code in codes:
        assert_good(code, capability, products_of(capability, way, D))
        # The next tile is loaded while one is multiplied, if two have room.
        assert ("cp.async" in code.ptx) == (code.stages > 1), code.kernel


LENGTHS, SLOPES = torch.tensor([256, 100]), torch.ones(4)
OPTIONS = {
    "soft-cap and lengths": Options(softcap=30.0, key_lengths=LENGTHS),
    "alibi and a window": Options(window=64, alibi_slopes=SLOPES),
    "all": Options(True, 64, LENGTHS, SLOPES, softcap=30.0),
}
# Of every option at every width only these are compiled, to save time. All
# options together contain the code of each and need the most registers: they
# are compiled at the widest rows. A soft-cap changes the tiles at 128.
BY_WIDTH = {
    64: (
        ("alibi and a window", "float16"),
        ("soft-cap and lengths", "bfloat16"),
    ),
    128: (("soft-cap and lengths", "bfloat16"), ("all", "float16")),
    256: (("all", "bfloat16"),),
}
BOTH = "forward", "backward"
WHERE = [((7, 5), 64, name, "float16", way) for name in OPTIONS for way in BOTH]
WHERE += [
    (capability, D, name, kind, way)
    for capability in LATER
    for D, some in BY_WIDTH.items()
    for name, kind in some
    for way in BOTH
    # Where the tiles are those of 8.0, only the assembler differs.
    if capability != (8, 9) or D == 128 or (D, way) == (256, "forward")
]
# Of these two, tiles are those of another; only the assembler differs.
WHERE += [(c, 128, "all", "float16", x) for c in ((8, 6), (8, 7)) for x in BOTH]
# Here all options at once stand for the others, which need fewer registers.
WHERE += [(c, 64, "all", "float16", x) for c in (*NEWEST, *UNLISTED) for x in BOTH]
WHERE += [
    (c, D, "all", kind, x)
    for c in NEWEST
    for D, kind in ((128, "float16"), (256, "bfloat16"))
    for x in BOTH
]


@pytest.mark.parametrize(("capability", "D", "name", "kind", "way"), WHERE)
def test_every_option_compiles_for_every_architecture(capability, D, name, kind, way):
    for code in compiled(capability, way, D, kind, OPTIONS[name]):
        assert_good(code, capability, products_of(capability, way, D))


def test_every_architecture_that_is_claimed_is_compiled():
    assert {x[0] for x in WHERE} == {*SHARED, *UNLISTED}


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
