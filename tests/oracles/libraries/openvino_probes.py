"""OpenVINO's scaled dot-product attention on a CPU."""

import numpy as np
import openvino
from openvino import opset13
from probing import describe_attention, print_words


def attend(query, key, value, mask=None, causal=False):
    arrays = [query, key, np.ascontiguousarray(value)]
    arrays += [] if mask is None else [mask]
    inputs = [opset13.parameter(x.shape, x.dtype) for x in arrays]
    options = {"attention_mask": inputs[3]} if mask is not None else {}
    node = opset13.scaled_dot_product_attention(*inputs[:3], causal=causal, **options)
    # On some processors the default is bfloat16.
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    model = openvino.compile_model(openvino.Model([node], inputs), "CPU", exact)
    return next(iter(model(arrays).values()))


if __name__ == "__main__":
    version = openvino.__version__.partition("-")[0]
    print_words(
        {
            "openvino": (
                f"openvino {version}",
                describe_attention(attend, "(B, H, T, D)"),
            )
        }
    )
