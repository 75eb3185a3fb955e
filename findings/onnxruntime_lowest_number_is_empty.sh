#!/usr/bin/env bash
# onnxruntime 1.32.0, Attention operator: a row masked with the lowest number.
#
# A row of additive masks that all hold exactly the lowest float32 counts as empty and
# gives zeros. With -3.4028e38, the same to five digits, it gives the mean of the values,
# as the reference implementation of onnx 1.23.2 does for both. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q onnx==1.23.2 onnxruntime==1.32.0 numpy
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

names = ("query", "key", "value")
inputs = [
    helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, 1, 2, 2]) for x in names
]
mask = helper.make_tensor_value_info("mask", TensorProto.FLOAT, [2, 2])
output = helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 1, 2, 2])
node = helper.make_node("Attention", [*names, "mask"], ["output"])
graph = helper.make_graph([node], "attention", [*inputs, mask], [output])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
model.ir_version = 10
session = onnxruntime.InferenceSession(model.SerializeToString())
reference = ReferenceEvaluator(model)
zeros = np.zeros((1, 1, 2, 2), np.float32)
value = np.array([[[[1, 2], [3, 4]]]], np.float32)
found = {}
for name, number in {
    "the lowest number": np.finfo(np.float32).min,
    "-3.4028e38": np.float32(-3.4028e38),
}.items():
    feed = {"query": zeros, "key": zeros, "value": value}
    feed["mask"] = np.array([[0, 0], [number, number]], np.float32)
    found[name] = [
        x.run(None, feed)[0][0, 0, 1].tolist() for x in (session, reference)
    ]
    print(name, "onnxruntime, reference:", found[name])
assert found["the lowest number"] == [[0, 0], [2, 3]]
assert found["-3.4028e38"] == [[2, 3], [2, 3]]
PYTHON
