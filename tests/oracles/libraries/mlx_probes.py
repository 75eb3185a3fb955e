"""MLX's scaled dot-product attention and rotary embedding on a CPU."""

import mlx.core as mx
import numpy as np
from mlx import nn
from probing import (
    describe_attention,
    describe_rotation,
    describe_sinusoids,
    print_words,
)


def attend(query, key, value, mask=None, causal=False):
    if causal and mask is not None:
        raise ValueError("the argument mask is an array or the word causal")
    inputs = (mx.array(np.ascontiguousarray(x)) for x in (query, key, value))
    given = "causal" if causal else None if mask is None else mx.array(mask)
    scale = query.shape[-1] ** -0.5
    return np.array(
        mx.fast.scaled_dot_product_attention(*inputs, scale=scale, mask=given)
    )


def rotate(x):
    return np.array(nn.RoPE(x.shape[1])(mx.array(x)[None, None]))[0, 0]


if __name__ == "__main__":
    words = describe_attention(attend, "(B, H, T, D)") | {"scale": "must be given"}
    words |= describe_rotation(rotate)
    table = (
        nn.SinusoidalPositionalEncoding(8)(mx.arange(4))
        / nn.SinusoidalPositionalEncoding(8).scale
    )
    words["sinusoids"] = describe_sinusoids(np.array(table))
    print_words({"mlx": (f"mlx {mx.__version__}", words)})
