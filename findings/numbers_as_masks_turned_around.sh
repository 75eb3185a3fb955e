#!/usr/bin/env bash
# flax 0.12.8, equinox 0.13.8, dm-haiku 0.0.17: an additive mask is read upside down.
#
# The three take a mask of any type and let a query attend where it is not zero. The
# additive mask of most of the field, 0 where a query can attend and a large negative
# number elsewhere, is therefore obeyed the wrong way round, without an error. Fails if
# that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q jax==0.10.2 flax==0.12.8 equinox==0.13.8 dm-haiku==0.0.17
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import equinox
import haiku
import jax
import jax.numpy as jnp
from flax import nnx

key = jax.random.key(0)
x = jax.random.normal(key, (3, 8))
boolean = jnp.tril(jnp.ones((3, 3), dtype=bool))
additive = jnp.where(boolean, 0.0, -1e9)

layer = equinox.nn.MultiheadAttention(2, 8, key=key)
transformed = haiku.transform(
    lambda x, mask: haiku.MultiHeadAttention(
        2, 4, w_init=haiku.initializers.VarianceScaling()
    )(x, x, x, mask[None])
)
parameters = transformed.init(key, x, boolean)


def flax(mask):
    heads = x.reshape(3, 2, 4)
    return nnx.dot_product_attention(heads, heads, heads, mask=mask)


calls = {
    "flax": flax,
    "equinox": lambda mask: layer(x, x, x, mask=mask),
    "dm-haiku": lambda mask: transformed.apply(parameters, key, x, mask),
}
for name, call in calls.items():
    right, wrong, found = call(boolean), call(~boolean), call(additive)
    turned = bool(jnp.allclose(found, wrong, atol=1e-5))
    print(name, version(name), "obeys the additive mask upside down:", turned)
    assert turned
    assert not jnp.allclose(found, right, atol=1e-2)
PYTHON
