"""The Triton kernels without a GPU: interpreted, and compiled for four GPUs."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

from attnbook.flash.options import Options
from attnbook.flash.sizes import SHARED
from flash_cases import CASES

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(
        sys.platform != "linux",
        reason="Triton is only made for Linux: its kernels were not tried",
    ),
]
SCRIPT = Path(__file__).with_name("interpret.py")
WIDTHS = {(7, 5): (64,)} | dict.fromkeys(
    ((8, 0), (8, 9), (9, 0)), (64, 128, 256)
)
PLAIN = Options(causal=True)


@cache
def interpreted():
    """Return what each case came to, all in one process of its own."""
    told = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr[-3000:]
    rows = map(json.loads, told.stdout.splitlines())
    return {(r["case"], r["dtype"]): r for r in rows}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("title", CASES)
def test_interpreted_it_is_the_law(title, dtype):
    found = interpreted()[title, dtype]
    assert max(found["shares"]) <= 1
    assert found["unharmed"]
    assert found["same"]


def test_interpreted_it_reads_texts_that_lie_2_to_the_31_apart():
    assert interpreted()["far apart", "float16"]["same"]


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
