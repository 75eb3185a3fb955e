"""JAX, Flax, Equinox, Haiku, and Keras 3 on JAX."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import equinox
import flax
import haiku
import jax
import keras
import numpy as np
from flax import nnx
from jax import numpy as jnp
from probing import (
    describe_attention,
    describe_rotation,
    describe_weights,
    describe_window,
    print_words,
)

KEPT = ("integer 1", "float 1", "empty row, -inf", "empty row, lowest number")


def lead(mask):
    """Return a mask (T, S) with the axes of batch and heads."""
    return None if mask is None else jnp.asarray(mask)[None, None]


def swap(*arrays):
    """Exchange the axes of heads and positions."""
    return [jnp.swapaxes(jnp.asarray(x), 1, 2) for x in arrays]


def merge(x):
    """Return (B, H, T, D) as (B, T, H·D)."""
    return jnp.swapaxes(jnp.asarray(x), 1, 2).reshape(x.shape[0], x.shape[2], -1)


def split(x, heads):
    """Return (B, T, H·D) as (B, H, T, D)."""
    return jnp.swapaxes(x.reshape(*x.shape[:2], heads, -1), 1, 2)


def from_jax(query, key, value, mask=None, causal=False, **options):
    return swap(
        jax.nn.dot_product_attention(
            *swap(query, key, value), mask=lead(mask), is_causal=causal, **options
        )
    )[0]


def with_bias(query, key, value, mask=None):
    return from_jax(query, key, value, bias=lead(mask))


def from_flax(query, key, value, mask=None):
    inputs = swap(query, key, value)
    return swap(nnx.dot_product_attention(*inputs, mask=lead(mask)))[0]


def from_equinox(query, key, value, mask=None):
    H, D = query.shape[1], query.shape[3]
    layer = equinox.nn.MultiheadAttention(H, H * D, key=jax.random.key(0))
    names = ("query_proj", "key_proj", "value_proj", "output_proj")
    layer = equinox.tree_at(
        lambda x: [getattr(x, name).weight for name in names],
        layer,
        [jnp.eye(H * D)] * 4,
    )
    mask = None if mask is None else jnp.asarray(mask)
    output = jax.vmap(lambda *x: layer(*x, mask=mask))(*map(merge, (query, key, value)))
    return split(output, H)


def from_haiku(query, key, value, mask=None):
    H, D = query.shape[1], query.shape[3]

    def run(*inputs):
        identity = haiku.initializers.Identity()
        layer = haiku.MultiHeadAttention(H, D, w_init=identity, model_size=H * D)
        return layer(*inputs, mask=lead(mask))

    inputs = [merge(x) for x in (query, key, value)]
    model = haiku.transform(run)
    return split(model.apply(model.init(jax.random.key(0), *inputs), None, *inputs), H)


def build_keras(H, D, **options):
    layer = keras.layers.MultiHeadAttention(H, D, use_bias=False, **options)
    layer.build((1, 2, H * D), (1, 2, H * D))
    eye = np.eye(H * D)
    first = eye.reshape(H * D, H, D)
    layer.set_weights([first, first, first, eye.reshape(H, D, H * D)])
    return layer


def from_keras(query, key, value, mask=None, causal=False, scores=False):
    H, D = query.shape[1], query.shape[3]
    output = build_keras(H, D)(
        merge(query),
        merge(value),
        merge(key),
        attention_mask=None if mask is None else lead(mask)[0],
        use_causal_mask=causal,
        return_attention_scores=scores,
    )
    return split(output[0] if scores else output, H)


def from_keras_ops(query, key, value, mask=None, causal=False):
    inputs = swap(query, key, value)
    return swap(
        keras.ops.dot_product_attention(*inputs, mask=lead(mask), is_causal=causal)
    )[0]


def from_keras_attention(query, key, value, mask=None, causal=False):
    B, H = query.shape[:2]
    inputs = [x.reshape(B * H, *x.shape[2:]) for x in (query, value, key)]
    masks = None if mask is None else [None, jnp.asarray(mask)]
    output = keras.layers.Attention()(inputs, mask=masks, use_causal_mask=causal)
    return output.reshape(B, H, *output.shape[1:])


def describe_keras():
    only = {"grouped": False, "width": False}
    words = describe_attention(from_keras, "(B, T, H·D)", **only)
    asked = describe_attention(
        lambda *x, **y: from_keras(*x, **y, scores=True), "(B, T, H·D)", **only
    )
    words["empty row, weights asked for"] = asked["empty row, boolean"]
    x = np.random.default_rng(0).standard_normal((1, 3, 8), np.float32)
    _, weights = build_keras(2, 4, dropout=0.5)(
        x, x, return_attention_scores=True, training=True
    )
    return words | describe_weights(weights, 2)


def describe_keras_window(**options):
    layer = keras.layers.GroupQueryAttention(9, 1, 1, use_bias=False, sliding_window=3)
    layer.build((1, 9, 9), (1, 9, 9))
    eye = np.eye(9)
    layer.set_weights([eye[:, None], eye[:, None], eye[:, None], eye[None]])
    return describe_window(
        lambda query, key, value: layer(query[0], value[0], key[0], **options)[None]
    )


def find_lost_mask():
    """Return whether a second layer on one embedding still gets its mask."""
    embedded = keras.layers.Embedding(5, 8, mask_zero=True)(np.array([[1, 2, 0, 0]]))
    weights = [
        build_keras(2, 4)(embedded, embedded, return_attention_scores=True)[1]
        for _ in range(2)
    ]
    hidden = [bool(np.allclose(np.asarray(w)[..., 2:], 0)) for w in weights]
    return {(True, True): "kept", (True, False): "lost"}.get(tuple(hidden), str(hidden))


if __name__ == "__main__":
    JAX, KERAS = f"jax {jax.__version__}", f"keras {keras.__version__}"
    window = {
        "window of 3": describe_window(lambda *x: from_jax(*x, local_window_size=3))
    }
    rotary = equinox.nn.RotaryPositionalEmbedding(64)
    bias = describe_attention(
        with_bias, "(B, T, H, D)", causal=False, grouped=False, width=False
    )
    few = {"causal": False, "grouped": False, "width": False}
    print_words(
        {
            "jax": (JAX, describe_attention(from_jax, "(B, T, H, D)") | window),
            "jax bias": (JAX, {k: v for k, v in bias.items() if k in KEPT}),
            "flax": (
                f"flax {flax.__version__}",
                describe_attention(from_flax, "(B, T, H, D)", causal=False),
            ),
            "equinox": (
                f"equinox {equinox.__version__}",
                describe_attention(from_equinox, "(T, H·D)", **few)
                | describe_rotation(lambda x: np.asarray(rotary(jnp.asarray(x)))),
            ),
            "haiku": (
                f"dm-haiku {haiku.__version__}",
                describe_attention(from_haiku, "(B, T, H·D)", **few),
            ),
            "keras": (
                KERAS,
                describe_keras() | {"padding mask in a second layer": find_lost_mask()},
            ),
            "keras GroupQueryAttention": (
                KERAS,
                {
                    "window of 3": describe_keras_window(),
                    "window of 3, causal": describe_keras_window(use_causal_mask=True),
                },
            ),
            "keras ops": (KERAS, describe_attention(from_keras_ops, "(B, T, H, D)")),
            "keras Attention": (
                KERAS,
                describe_attention(
                    from_keras_attention, "(B, T, D)", grouped=False, width=False
                ),
            ),
        }
    )
