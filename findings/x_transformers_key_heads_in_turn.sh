#!/usr/bin/env bash
# x-transformers 2.31.10, Attend: which key head a query head uses.
#
# With 4 query heads on 2 key heads, torch's enable_gqa, JAX, Keras, ONNX and MLX give
# query heads 0 and 1 to key head 0, and 2 and 3 to key head 1. Here query heads 0 and 2
# use key head 0, and 1 and 3 use key head 1. Weights carried from one library to the
# other load without an error and compute something else. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q torch==2.13.0 x-transformers==2.31.10
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import torch
from torch.nn import functional as F
from x_transformers.attend import Attend

query, key = torch.zeros(1, 4, 1, 8), torch.zeros(1, 2, 1, 8)
value = torch.tensor([10.0, 20.0]).reshape(1, 2, 1, 1).expand(1, 2, 1, 8).contiguous()
plain = F.scaled_dot_product_attention(query, key, value, enable_gqa=True)
found = {}
for flash in (False, True):
    output, _ = Attend(flash=flash, heads=4)(query, key, value)
    found[flash] = output[0, :, 0, 0].tolist()
print("torch", torch.__version__, plain[0, :, 0, 0].tolist())
print("x-transformers", version("x-transformers"), found)
assert plain[0, :, 0, 0].tolist() == [10, 10, 20, 20]
assert found[False] == found[True] == [10, 20, 10, 20]
PYTHON
