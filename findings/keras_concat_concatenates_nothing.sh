#!/usr/bin/env bash
# keras 3.15.1, Attention(score_mode="concat"): its parameters and its score.
#
# Luong et al. (2015) score with v' tanh(W [query; key]). The layer of that name has one
# trained number, and no matrix and no vector: its score is that number times the sum over
# the width of tanh(query + key). Nothing is concatenated. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q keras==3.15.1 jax==0.10.2 numpy
cd "$folder"
KERAS_BACKEND=jax "$folder/venv/bin/python" - <<'PYTHON'
import keras
import numpy as np

random = np.random.default_rng(0)
query, value = (random.standard_normal((1, n, 4)).astype("float32") for n in (2, 3))
layer = keras.layers.Attention(score_mode="concat")
_, weights = layer([query, value], return_attention_scores=True)
shapes = {w.name: w.shape for w in layer.weights}
scores = np.tanh(query[:, :, None] + value[:, None]).sum(-1)
exponentials = np.exp(scores - scores.max(-1, keepdims=True))
wanted = exponentials / exponentials.sum(-1, keepdims=True)
print("keras", keras.__version__, shapes)
print("largest difference of the weights:", abs(np.asarray(weights) - wanted).max())
assert list(shapes.values()) == [()]
assert np.allclose(weights, wanted, atol=1e-5)
PYTHON
