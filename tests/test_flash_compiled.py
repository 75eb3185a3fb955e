"""The Triton kernels, compiled on the CPU for GPUs that are not there."""

import sys
from functools import cache

import pytest
import torch

from attnbook.flash.options import Options
from attnbook.flash.sizes import SHARED

pytestmark = [
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
def compiled(capability, way, D, kind="float16", options=PLAIN, **shapes):
    import compiling

    given = compiling.inputs(D, dtype=getattr(torch, kind), **shapes)
    return compiling.compiled(capability, way, given, options)


def kind_of(capability, D):
    """Half of them in each half precision, where there are two."""
    return "bfloat16" if capability >= (8, 0) and D != 128 else "float16"


@pytest.mark.parametrize("way", ["forward", "backward"])
@pytest.mark.parametrize(
    ("capability", "D"), [(c, D) for c, some in WIDTHS.items() for D in some]
)
def test_compiled_it_fits_the_gpu(capability, D, way):
    codes = compiled(capability, way, D, kind_of(capability, D))
    assert len(codes) == (1 if way == "forward" else 2)
    for code in codes:
        assert code.shared <= SHARED[capability]
        assert code.spilled == 0, code.kernel
        multiplies(code, capability)


def multiplies(code, capability):
    """Assert what makes a kernel fast on a GPU, or that it cannot be."""
    if capability == (7, 5):
        # Triton left the T4's tensor cores: plain multiply and add.
        assert "mma.sync" not in code.ptx
        assert code.count("FFMA") > 100
        return
    assert "cp.async" in code.ptx
    wanted = "wgmma.mma_async" if capability == (9, 0) else "mma.sync"
    assert wanted in code.ptx
    assert code.count("HGMMA" if capability == (9, 0) else "HMMA") > 0


OTHERS = {
    "full": Options(),
    "soft-cap": Options(causal=True, softcap=30.0),
    "alibi": Options(causal=True, alibi_slopes=torch.ones(4)),
    "both": Options(window=64, softcap=30.0, alibi_slopes=torch.ones(4)),
}


@pytest.mark.parametrize("way", ["forward", "backward"])
@pytest.mark.parametrize("name", OTHERS)
def test_other_options_compile_as_well(name, way):
    for code in compiled((8, 0), way, 64, options=OTHERS[name]):
        assert code.shared <= SHARED[8, 0]
        assert code.spilled == 0, code.kernel
        multiplies(code, (8, 0))


ODD = {
    "one of everything": {"T": 1, "S": 1, "H": 1, "G": 1, "B": 1},
    "one query, 131 keys": {"T": 1, "S": 131, "H": 8, "G": 2},
    "rows of no power of two": {"D": 80, "E": 48},
}


@pytest.mark.parametrize("name", ODD)
def test_odd_shapes_compile(name):
    """Triton compiles anew where a number is 1, or no multiple of 16."""
    shapes = {"D": 64} | ODD[name]
    (code,) = compiled((8, 0), "forward", **shapes)
    assert code.shared <= SHARED[8, 0]
    multiplies(code, (8, 0))
