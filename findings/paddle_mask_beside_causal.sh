#!/usr/bin/env bash
# paddlepaddle 3.3.1, scaled_dot_product_attention: a mask beside is_causal=True.
#
# The mask hides key 0 from every query but the first. Alone it is obeyed. With
# is_causal=True as well it has no effect: the output is that of is_causal=True alone,
# without an error or a warning. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q paddlepaddle==3.3.1 setuptools
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import paddle
from paddle.nn.functional import scaled_dot_product_attention

paddle.seed(0)
query, key, value = (paddle.randn([1, 3, 1, 4]) for _ in range(3))
mask = np.ones((1, 1, 3, 3), dtype=bool)
mask[..., 1:, 0] = False


def attend(mask, causal):
    mask = None if mask is None else paddle.to_tensor(mask)
    return scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal, training=False
    ).numpy()


alone = attend(mask, causal=False)
causal = attend(None, causal=True)
both = attend(mask, causal=True)
wanted = attend(mask & np.tril(np.ones((3, 3), dtype=bool)), causal=False)
print("paddlepaddle", paddle.__version__)
print("mask alone changes the output:", not np.allclose(alone, attend(None, False)))
print("mask and is_causal equals is_causal alone:", np.allclose(both, causal))
print("the two rules together would differ by", abs(wanted - both).max().round(3))
assert not np.allclose(alone, attend(None, False))
assert np.allclose(both, causal)
assert abs(wanted - both).max() > 0.01
PYTHON
