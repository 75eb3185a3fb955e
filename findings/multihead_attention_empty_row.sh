#!/usr/bin/env bash
# torch 2.13.0, nn.MultiheadAttention: what a query gets that can attend to no key.
#
# The same module, the same input, a key_padding_mask that hides every key of the
# second sentence. In training the layer returns the bias of its output projection
# for that sentence, without a warning. In evaluation, without gradients, the fast
# path returns NaN. F.scaled_dot_product_attention returns zeros for such a row.
# Fails if any of the three changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q torch==2.13.0 numpy
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
layer = nn.MultiheadAttention(8, 2, batch_first=True)
nn.init.normal_(layer.out_proj.bias)
x = torch.randn(2, 3, 8)
hidden = torch.tensor([[False, False, True], [True, True, True]])

trained = layer(x, x, x, key_padding_mask=hidden, need_weights=False)[0][1]
with torch.no_grad():
    evaluated = layer.eval()(x, x, x, key_padding_mask=hidden, need_weights=False)[0][1]
query = torch.randn(1, 1, 3, 4)
empty = F.scaled_dot_product_attention(
    query, query, query, attn_mask=torch.zeros(3, 3, dtype=torch.bool)
)

print("torch", torch.__version__)
print("training: equals the output bias:", torch.allclose(trained, layer.out_proj.bias))
print("evaluation: NaN:", bool(evaluated.isnan().all()))
print("scaled_dot_product_attention: zeros:", not empty.any())
assert torch.allclose(trained, layer.out_proj.bias.expand_as(trained))
assert evaluated.isnan().all()
assert not empty.any()
PYTHON
