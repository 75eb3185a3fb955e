#!/usr/bin/env bash
# keras 3.15.1, MultiHeadAttention: asking for the weights changes the output.
#
# The mask hides every key from one query. The plain call returns the mean of the values
# (projected); the same call with return_attention_scores=True returns zeros (projected,
# so the output's bias) and weights of 0. Other queries are the same in both. Fails if
# that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q keras==3.15.1 jax==0.10.2
cd "$folder"
KERAS_BACKEND=jax "$folder/venv/bin/python" - <<'PYTHON'
import keras
import numpy as np

keras.utils.set_random_seed(0)
layer = keras.layers.MultiHeadAttention(num_heads=2, key_dim=4)
x = np.random.default_rng(0).standard_normal((1, 3, 8)).astype("float32")
mask = np.ones((1, 3, 3), dtype=bool)
mask[0, 2] = False
plain = np.asarray(layer(x, x, attention_mask=mask))
output, weights = layer(x, x, attention_mask=mask, return_attention_scores=True)
output, weights = np.asarray(output), np.asarray(weights)
print("keras", keras.__version__, "on", keras.backend.backend())
print("query 0 and 1 agree:", np.allclose(plain[0, :2], output[0, :2], atol=1e-5))
print("query 2, plain call:", plain[0, 2].round(3)[:4])
print("query 2, weights asked for:", output[0, 2].round(3)[:4])
assert np.allclose(plain[0, :2], output[0, :2], atol=1e-5)
assert abs(plain[0, 2]).max() > 0.01
assert abs(output[0, 2]).max() < 1e-6 and abs(weights[0, :, 2]).max() < 1e-6
PYTHON
