#!/usr/bin/env bash
# transformers 5.24.0, gpt-oss, eager: the attention weights that come back.
#
# The layer has a learned sink, one more column of the softmax. That column is dropped
# before the weights are returned, so that the rows of a sound model sum to less than 1,
# each to another number; a check that rows sum to 1 calls it faulty. Fails if that
# changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q torch==2.13.0 transformers==5.24.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import torch
import transformers
from transformers import GptOssConfig, GptOssModel

torch.manual_seed(0)
config = GptOssConfig(
    vocab_size=32,
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    num_local_experts=2,
    num_experts_per_tok=1,
    attn_implementation="eager",
)
model = GptOssModel(config).eval()
with torch.no_grad():
    for layer in model.layers:
        layer.self_attn.sinks.zero_()
    found = model(torch.arange(6)[None], output_attentions=True).attentions
sums = torch.stack(found).sum(-1)
print("transformers", transformers.__version__)
print("sums of the rows:", sums.min().item(), "to", sums.max().item())
assert sums.max() < 0.99
# With equal scores, row t would have t + 1 of t + 2 equal shares.
shares = torch.arange(1, 7) / torch.arange(2, 8)
assert (sums - shares).abs().max() < 0.05
PYTHON
