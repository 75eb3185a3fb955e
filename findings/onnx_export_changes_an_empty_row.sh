#!/usr/bin/env bash
# torch 2.13.0 to onnxruntime 1.32.0: a query that can attend to no key, after export.
#
# torch returns zeros for it. Exported with the default operator set the model returns
# the mean of the values for a boolean mask and NaN for a mask of 0 and -inf; exported
# with operator set 23 it returns zeros for both. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q torch==2.13.0 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.32.0 numpy
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import onnxruntime
import torch
from torch.nn import functional as F


class Attend(torch.nn.Module):
    def forward(self, query, key, value, mask):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


torch.manual_seed(0)
query, key, value = (torch.randn(1, 1, 3, 4) for _ in range(3))
boolean = torch.ones(3, 3, dtype=torch.bool)
boolean[2] = False
additive = torch.zeros(3, 3).masked_fill(~boolean, -torch.inf)
found = {}
for kind, mask in {"boolean": boolean, "additive": additive}.items():
    inputs = (query, key, value, mask)
    assert not Attend()(*inputs)[0, 0, 2].any()
    for opset in (None, 23):
        program = torch.onnx.export(
            Attend().eval(), inputs, dynamo=True, opset_version=opset, verbose=False
        )
        program.save("model.onnx")
        session = onnxruntime.InferenceSession("model.onnx")
        names = [x.name for x in session.get_inputs()]
        feed = dict(zip(names, (x.numpy() for x in inputs)))
        row = torch.from_numpy(session.run(None, feed)[0])[0, 0, 2]
        if row.isnan().all():
            found[kind, opset] = "NaN"
        elif not row.any():
            found[kind, opset] = "zeros"
        elif torch.allclose(row, value[0, 0].mean(0), atol=1e-5):
            found[kind, opset] = "mean"
        print("opset", opset or "by default", kind, found.get((kind, opset), row))
assert found == {
    ("boolean", None): "mean",
    ("boolean", 23): "zeros",
    ("additive", None): "NaN",
    ("additive", 23): "zeros",
}
PYTHON
