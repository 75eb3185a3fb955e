#!/usr/bin/env bash
# triton 3.7.1, TRITON_INTERPRET=1: arithmetic in bfloat16.
#
# The interpreter keeps bfloat16 as 16-bit integers and computes with those. The sum of
# 64 ones is not 64, and a cast from float32 cuts digits off where a GPU and torch round
# to nearest. float16 is right in both. A kernel that casts to float32 before it computes
# is not affected by the first. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q torch==2.13.0 triton==3.7.1 numpy
cd "$folder"
TRITON_INTERPRET=1 "$folder/venv/bin/python" - <<'PYTHON'
import pathlib
import subprocess
import sys

pathlib.Path("probe.py").write_text('''
import torch
import triton
import triton.language as tl


@triton.jit
def add_up(x, total, cast, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(total, tl.sum(tl.load(x + at), 0))
    tl.store(cast + at, (tl.full((N,), 1.0, tl.float32) + 3 / 512).to(tl.bfloat16))


for dtype in (torch.float16, torch.bfloat16):
    x = torch.ones(64, dtype=dtype)
    total = torch.zeros(1, dtype=dtype)
    cast = torch.zeros(64, dtype=torch.bfloat16)
    add_up[(1,)](x, total, cast, 64)
    print(dtype, "sum of 64 ones:", total.item())
    assert (total.item() == 64) == (dtype == torch.float16)
rounded = torch.tensor(1.0 + 3 / 512).to(torch.bfloat16).item()
print("1 + 3/512 in bfloat16:", cast[0].item(), "rounded to nearest:", rounded)
assert cast[0].item() == 1.0 and rounded == 1.0078125
print("triton", triton.__version__)
''')
subprocess.run([sys.executable, "probe.py"], check=True)
PYTHON
