"""The kernels, compiled on the CPU for a GPU that is not there.

`PYTHONPATH=lib python tests/helpers/compiling.py` prints what each one needs.

`compile_pass(capability, function, ...)` calls a launcher of `attnbook.flash`
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
from attnbook.flash.options import NO_PACKING, Options, Packing
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


def make_inputs(D, B=2):
    query, key, value = (torch.empty(B, H, 256, D).half() for H in (4, 2, 2))
    return query, key, value


def compile_pass(
    capability: tuple[int, int],
    way: str,
    given: tuple,
    options: Options,
    tile: TileSizes | None = None,
    packing: Packing = NO_PACKING,
    upstream: bool = False,
) -> list[CompiledKernel]:
    """Return the code of each kernel of a pass over inputs like these.

    With `upstream`, the logsumexp has a gradient.
    """
    with compile_for(capability) as made:
        if way == "forward":
            launch.forward(*given, options, tile, packing)
        else:
            query, lse = given[0], given[0][..., 0].float()
            more = query, options, tile, lse if upstream else None, packing
            launch.backward(*given, query, lse, *more)
        return [describe_kernel(*kernel) for kernel in made]


def choose_everything(packed: bool) -> dict:
    """Return all options of a pass over `make_inputs` that go together."""
    lengths = None if packed else torch.tensor([256, 100])
    slopes = torch.ones(4)
    options = Options(softcap=30.0, window=64, alibi_slopes=slopes, key_lengths=lengths)
    offsets = torch.tensor([0, 100, 256], dtype=torch.int32)
    packing = (offsets, offsets) if packed else NO_PACKING
    return {"options": options, "packing": packing, "upstream": True}


def main():
    """Print registers, spilled bytes and shared memory as a table."""
    kinds = {
        "none": {"options": Options()},
        "causal": {"options": Options(causal=True)},
        "all, lengths": choose_everything(packed=False),
        "all, packed": choose_everything(packed=True),
    }
    print("registers / spilled bytes of a thread / KiB of shared memory\n")
    print("| GPU | width | options | forward | query_gradient | key_value_gradient |")
    print("|---|---|---|---|---|---|")
    for capability in SHARED:
        for D, (name, more) in product((64, 128, 256), kinds.items()):
            if find_gpu_limit(capability, torch.float16, D):
                continue
            given = make_inputs(D, B=1 if name == "all, packed" else 2)
            codes = [
                f"{x.registers} / {x.spilled} / {x.shared / 1024:.1f}"
                for way in ("forward", "backward")
                for x in compile_pass(capability, way, given, **more)
            ]
            number = ".".join(map(str, capability))
            print("|", " | ".join([number, str(D), name, *codes]), "|", flush=True)


if __name__ == "__main__":
    main()
