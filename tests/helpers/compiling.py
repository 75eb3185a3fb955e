"""The kernels, compiled on the CPU for a GPU that is not there.

`PYTHONPATH=lib python tests/helpers/compiling.py` prints what each one needs.

`compile_pass` calls a launcher of `attnbook.flash`
as it would run on such a GPU, up to the launch: the same specialisation, the
same tile sizes. What comes back is each kernel's machine code, as data.
"""

import re
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from attnbook.flash import launch
from attnbook.flash.options import NO_PACKING, Options
from attnbook.flash.sizes import SHARED, TileSizes, find_gpu_limit

# Triton finds a kernel here by a hash of its source, its options, the GPU and
# Triton itself: the second run of the tests compiles what has changed.
CACHE = Path(__file__).parents[2] / ".pytest_cache/triton"
TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"


@dataclass(frozen=True)
class CompiledKernel:
    """What a compiled kernel needs, and what it is made of."""

    kernel: str
    shared: int  # bytes of shared memory
    spilled: int  # bytes of memory of a thread, for what no register holds
    registers: int  # of a thread
    ptx: str
    ttgir: str  # before it is divided among threads: tiles and layouts
    stages: int


@contextmanager
def compile_for(capability: tuple[int, int]):
    """Compile for a GPU; a launch compiles and notes, and runs nothing."""
    if capability == (11, 0) and triton.__version__ < "3.7":
        pytest.skip("the assembler of Triton 3.6 does not know 11.0")
    number = 10 * capability[0] + capability[1]
    driver = SimpleNamespace(
        get_current_device=lambda: number,
        get_current_stream=lambda device: 0,
        get_current_target=lambda: GPUTarget("cuda", number, 32),
    )
    made = []

    def launcher(kernel, grid):
        return lambda *a, **k: made.append(
            (kernel.__name__, kernel.warmup(*a, grid=grid, **k))
        )

    before = triton.runtime.driver._active
    triton.runtime.driver.set_active(driver)
    try:
        with (
            mock.patch.dict("os.environ", TRITON_CACHE_DIR=str(CACHE)),
            mock.patch.object(JITFunction, "__getitem__", launcher),
            mock.patch.object(
                torch.cuda, "get_device_capability", lambda device: capability
            ),
        ):
            yield made
    finally:
        triton.runtime.driver._active = before


def describe_kernel(name: str, kernel) -> CompiledKernel:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(kernel.asm["cubin"])
        command = [TOOLS / "cuobjdump", "--dump-resource-usage", file]
        usage = subprocess.check_output(command, text=True)
    return CompiledKernel(
        name,
        kernel.metadata.shared,
        sum(map(int, re.findall(r"(?:STACK|LOCAL):(\d+)", usage))),
        int(re.findall(r"REG:(\d+)", usage)[0]),
        kernel.asm["ptx"],
        kernel.asm["ttgir"],
        kernel.metadata.num_stages,
    )


KINDS = "none", "causal", "all, lengths", "all, packed"


def compile_pass(
    capability: tuple[int, int],
    way: str,
    D: int,
    kind: str = "causal",
    tile: TileSizes | None = None,
) -> list[CompiledKernel]:
    """Return the code of each kernel of a pass with the options of a kind.

    With all of them, the logsumexp has a gradient.
    """
    packing, B, lengths = NO_PACKING, 2, torch.tensor([256, 100])
    if kind == "all, packed":
        offsets = torch.tensor([0, 100, 256], dtype=torch.int32)
        packing, B, lengths = (offsets, offsets), 1, None
    query, key, value = (torch.empty(B, H, 256, D).half() for H in (4, 2, 2))
    options, lse_upstream = Options(causal=kind == "causal"), None
    lse = query[..., 0].float()
    if kind.startswith("all"):
        options = Options(False, 64, lengths, torch.ones(4), softcap=30.0)
        lse_upstream = lse
    with compile_for(capability) as made:
        if way == "forward":
            launch.forward(query, key, value, options, tile, packing)
        else:
            rows = query, key, value, query, lse, query
            launch.backward(*rows, options, tile, lse_upstream, packing)
        return [describe_kernel(*kernel) for kernel in made]


def main():
    """Print registers, spilled bytes and shared memory as a table."""
    print("registers / spilled bytes of a thread / KiB of shared memory\n")
    print("| GPU | width | options | forward | query_gradient | key_value_gradient |")
    print("|---|---|---|---|---|---|")
    for capability in SHARED:
        for D, kind in product((64, 128, 256), KINDS):
            if find_gpu_limit(capability, torch.float16, D):
                continue
            codes = [
                f"{x.registers} / {x.spilled} / {x.shared / 1024:.1f}"
                for way in ("forward", "backward")
                for x in compile_pass(capability, way, D, kind)
            ]
            number = ".".join(map(str, capability))
            print("|", " | ".join([number, str(D), kind, *codes]), "|", flush=True)


if __name__ == "__main__":
    main()
