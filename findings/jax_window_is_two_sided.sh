#!/usr/bin/env bash
# jax 0.10.2, jax.nn.dot_product_attention: what local_window_size=3 counts.
#
# A window of 3 is 3 keys, the query's own included, in Mistral and gpt-oss
# (transformers). Here one number is the distance on each side: 7 keys without a causal
# mask and 4 with it. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q jax==0.10.2
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import jax
import jax.numpy as jnp

T = 12
query = key = jnp.zeros((1, T, 1, T))
value = jnp.eye(T)[None, :, None]
seen = {}
for name, options in {
    "local_window_size=3": {"local_window_size": 3},
    "local_window_size=3, is_causal": {"local_window_size": 3, "is_causal": True},
    "local_window_size=(3, 0)": {"local_window_size": (3, 0)},
}.items():
    weights = jax.nn.dot_product_attention(query, key, value, **options)[0, 6, 0]
    seen[name] = [int(k) - 6 for k in jnp.nonzero(weights > 0)[0]]
    print("jax", jax.__version__, name, seen[name])
assert seen["local_window_size=3"] == [-3, -2, -1, 0, 1, 2, 3]
assert seen["local_window_size=3, is_causal"] == [-3, -2, -1, 0]
assert seen["local_window_size=(3, 0)"] == [-3, -2, -1, 0]
PYTHON
