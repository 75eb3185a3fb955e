#!/usr/bin/env bash
# transformers 5.24.0, output_attentions=True with the default implementation.
#
# The default implementation (sdpa) computes no weights. A model that is asked for them
# in the call returns an empty tuple, neither None nor an error, beside one line in the
# log. `zip(tokens, attentions)` and a loop over layers then do nothing. With
# attn_implementation="eager" the tuple has one entry a layer. Fails if that changes.
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

sizes = dict(
    vocab_size=32,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)
tokens = torch.arange(6)[None]
with torch.no_grad():
    default = LlamaModel(LlamaConfig(**sizes)).eval()
    empty = default(tokens, output_attentions=True).attentions
    default.set_attn_implementation("eager")
    full = default(tokens, output_attentions=True).attentions
print("transformers", transformers.__version__)
print("default:", empty)
print("eager:", [tuple(x.shape) for x in full])
assert empty == ()
assert [tuple(x.shape) for x in full] == [(1, 4, 6, 6)] * 2
PYTHON
