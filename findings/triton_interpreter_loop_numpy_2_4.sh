#!/usr/bin/env bash
# triton 3.6.0 and 3.7.1, TRITON_INTERPRET=1, numpy 2.3.5 and 2.4.6: a loop up to a number
# that is an argument of the kernel.
#
# The interpreter converts an array of one element to a Python number, which numpy 2.4
# refuses. Triton 3.6.0, which torch 2.11 installs, does not exclude that numpy; every
# kernel with such a loop raises TypeError there. A bound that is a tl.constexpr works, and
# so does triton 3.7.1. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
pip=("$folder/venv/bin/python" -m pip install -q)
"${pip[@]}" torch==2.13.0
for numpy in 2.3.5 2.4.6; do
  "${pip[@]}" --no-deps --target "$folder/numpy$numpy" "numpy==$numpy"
done
for triton in 3.6.0 3.7.1; do
  "${pip[@]}" --no-deps --target "$folder/triton$triton" "triton==$triton"
done
cd "$folder"
cat > probe.py <<'PYTHON'
import numpy
import torch
import triton
import triton.language as tl


@triton.jit
def add_up(x, total, count):
    summed = 0.0
    for i in range(0, count):
        summed += tl.load(x + i)
    tl.store(total, summed)


@triton.jit
def add_up_known(x, total, count: tl.constexpr):
    summed = 0.0
    for i in range(0, count):
        summed += tl.load(x + i)
    tl.store(total, summed)


for kernel in add_up, add_up_known:
    total = torch.zeros(1)
    try:
        kernel[(1,)](torch.ones(5), total, 5)
        found = f"{total.item():.0f}"
    except Exception as error:
        found = f"{type(error.__cause__ or error).__name__}: {error}".splitlines()[-1]
    print(f"triton {triton.__version__}, numpy {numpy.__version__}, "
          f"{kernel.fn.__name__}: {found}")
PYTHON
for triton in 3.6.0 3.7.1; do
  for numpy in 2.3.5 2.4.6; do
    PYTHONPATH="$folder/triton$triton:$folder/numpy$numpy" TRITON_INTERPRET=1 \
      "$folder/venv/bin/python" probe.py 2>/dev/null
  done
done | tee found.txt
[ "$(grep -c ': 5$' found.txt)" = 7 ]
grep -q "^triton 3.6.0, numpy 2.4.6, add_up: .*0-dimensional" found.txt
