"""PaddlePaddle's scaled dot-product attention on a CPU."""

import numpy as np
import paddle
from paddle.nn.functional import scaled_dot_product_attention
from probing import describe_attention, print_words


def attend(query, key, value, mask=None, causal=False):
    inputs = (np.ascontiguousarray(x.swapaxes(1, 2)) for x in (query, key, value))
    mask = None if mask is None else paddle.to_tensor(mask[None, None])
    output = scaled_dot_product_attention(
        *map(paddle.to_tensor, inputs), attn_mask=mask, is_causal=causal, training=False
    )
    return output.numpy().swapaxes(1, 2)


if __name__ == "__main__":
    print_words(
        {
            "paddle": (
                f"paddlepaddle {paddle.__version__}",
                describe_attention(attend, "(B, T, H, D)"),
            )
        }
    )
