#!/usr/bin/env bash
# openvino 2026.4.1, ScaledDotProductAttention (opset 13): a mask beside causal=True.
#
# The mask hides key 0 from every query but the first. Alone it is obeyed. With
# causal=True as well it has no effect: the output is that of causal=True alone,
# without an error or a warning. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q openvino==2026.4.1 numpy
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import openvino
from openvino import opset13

random = np.random.default_rng(0)
inputs = [random.standard_normal((1, 1, 3, 4)).astype(np.float32) for _ in range(3)]
mask = np.ones((1, 1, 3, 3), dtype=bool)
mask[..., 1:, 0] = False


def attend(mask, causal):
    arrays = inputs + ([] if mask is None else [mask])
    nodes = [opset13.parameter(x.shape, x.dtype) for x in arrays]
    options = {} if mask is None else {"attention_mask": nodes[3]}
    node = opset13.scaled_dot_product_attention(*nodes[:3], causal=causal, **options)
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    model = openvino.compile_model(openvino.Model([node], nodes), "CPU", exact)
    return next(iter(model(arrays).values()))


causal = attend(None, causal=True)
both = attend(mask, causal=True)
wanted = attend(mask & np.tril(np.ones((3, 3), dtype=bool)), causal=False)
print("openvino", openvino.__version__)
print("mask and causal equals causal alone:", np.allclose(both, causal, atol=1e-6))
print("the two rules together would differ by", abs(wanted - both).max().round(3))
assert np.allclose(both, causal, atol=1e-6)
assert abs(wanted - both).max() > 0.01
PYTHON
