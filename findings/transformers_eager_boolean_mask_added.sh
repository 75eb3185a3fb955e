#!/usr/bin/env bash
# transformers 5.24.0, Llama: a four-dimensional boolean mask.
#
# With sdpa, True lets a query attend to a key. With eager the same mask is added to the
# scores, so True adds 1, False adds 0, and nothing is masked: changing a hidden token
# changes the output. There is no error and no warning. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q torch==2.13.0 transformers==5.24.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import torch
import transformers
from transformers import LlamaConfig, LlamaModel

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=32,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
)
model = LlamaModel(config).eval()
mask = torch.ones(6, 6, dtype=torch.bool).tril()[None, None]
mask[..., 1:, 0] = False
tokens, changed = torch.arange(1, 7)[None], torch.arange(1, 7)[None].clone()
changed[0, 0] = 20
found = {}
for kind in ("sdpa", "eager"):
    model.set_attn_implementation(kind)
    with torch.no_grad():
        one, other = (
            model(x, attention_mask=mask).last_hidden_state for x in (tokens, changed)
        )
    found[kind] = (one - other)[0, 1:].abs().max().item()
print("transformers", transformers.__version__)
print("a hidden token changes the outputs of the others by", found)
assert found["sdpa"] < 1e-6
assert found["eager"] > 1e-4
PYTHON
