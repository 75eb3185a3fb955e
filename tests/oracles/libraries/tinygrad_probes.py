"""tinygrad's scaled dot-product attention, interpreted in Python."""

import importlib.metadata
import os

os.environ["DEV"] = "PYTHON"

import numpy as np
from probing import describe_attention, print_words
from tinygrad import Tensor


def attend(query, key, value, mask=None, causal=False):
    query, key, value = (Tensor(np.ascontiguousarray(x)) for x in (query, key, value))
    return query.scaled_dot_product_attention(
        key,
        value,
        attn_mask=None if mask is None else Tensor(mask),
        is_causal=causal,
        enable_gqa=query.shape[1] != key.shape[1],
    ).numpy()


if __name__ == "__main__":
    version = importlib.metadata.version("tinygrad")
    print_words(
        {
            "tinygrad": (
                f"tinygrad {version}",
                describe_attention(attend, "(B, H, T, D)"),
            )
        }
    )
