#!/usr/bin/env bash
# torch 2.13.0, nn.MultiheadAttention: is_causal=True beside another mask.
#
# The mask hides key 0 from every query but the first and is not causal. In training the
# given mask is used with need_weights=True; with need_weights=False the same call uses a
# causal mask and ignores the given one. In evaluation without gradients both use the
# given mask. There is no warning. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q torch==2.13.0 numpy
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import torch
from torch import nn

torch.manual_seed(0)
layer = nn.MultiheadAttention(8, 2, batch_first=True)
x = torch.randn(1, 4, 8)
hidden = torch.zeros(4, 4, dtype=torch.bool)
hidden[1:, 0] = True
later = torch.ones(4, 4, dtype=torch.bool).triu(1)


def attend(mask, **options):
    return layer(x, x, x, attn_mask=mask, **options)[0]


def name(output):
    for rule, mask in {"given": hidden, "causal": later}.items():
        if torch.allclose(output, attend(mask), atol=1e-6):
            return rule
    return "another"


found = {}
for training in (True, False):
    layer.train(training)
    with torch.set_grad_enabled(training):
        for asked in (True, False):
            output = attend(hidden, need_weights=asked, is_causal=True)
            found[training, asked] = name(output)
            print(
                f"training={training} need_weights={asked}:",
                found[training, asked],
                "mask",
            )
print("torch", torch.__version__)
assert found == {
    (True, True): "given",
    (True, False): "causal",
    (False, True): "given",
    (False, False): "given",
}
PYTHON
