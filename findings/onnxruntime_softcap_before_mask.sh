#!/usr/bin/env bash
# onnxruntime 1.23.2 and 1.32.0: the Attention operator's soft-cap and mask.
#
# One model, operator set 23, softcap 2, one masked key. 1.32.0 caps the scaled scores
# and then masks: the masked key has weight 0. 1.23.2 masks first and caps the sum, so
# that -inf becomes -2 and the masked key keeps a weight. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q onnx==1.19.1 onnxruntime==1.23.2 numpy
cd "$folder"
cat > probe.py <<'PYTHON'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

shape = [1, 1, 2, 2]
names = ("query", "key", "value")
inputs = [helper.make_tensor_value_info(x, TensorProto.FLOAT, shape) for x in names]
mask = helper.make_tensor_value_info("mask", TensorProto.BOOL, [2, 2])
output = helper.make_tensor_value_info("output", TensorProto.FLOAT, shape)
node = helper.make_node("Attention", [*names, "mask"], ["output"], softcap=2.0)
graph = helper.make_graph([node], "attention", [*inputs, mask], [output])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
model.ir_version = 10
onnx.checker.check_model(model)
session = onnxruntime.InferenceSession(model.SerializeToString())
zeros = np.zeros(shape, np.float32)
feed = {
    "query": zeros,
    "key": zeros,
    # The second number of the output is the weight of the second key.
    "value": np.eye(2, dtype=np.float32)[None, None],
    "mask": np.array([[True, False], [True, True]]),
}
weight = float(session.run(None, feed)[0][0, 0, 0, 1])
print("onnxruntime", onnxruntime.__version__, "weight of the masked key:", weight)
old = onnxruntime.__version__ == "1.23.2"
assert (weight > 0.05) if old else (weight == 0)
PYTHON
"$folder/venv/bin/python" probe.py
"$folder/venv/bin/python" -m pip install -q onnx==1.23.2 onnxruntime==1.32.0
"$folder/venv/bin/python" probe.py
