"""Chapter 8: attention with positions."""

import torch

from attnbook.attention.scaled_dot_product import attend, attention_weights
from attnbook.positions.absolute import frequencies
from attnbook.positions.biases import AlibiBias, ShawEncoding, T5Bias
from attnbook.positions.rotary import apply_rotary, rotary_angles
from cost_calls import call_biased, call_heads


def build_shaw(n):
    # One table is D wide and one E: the module has both as wide as a head.
    keys, values = ShawEncoding(n.D, n.r), ShawEncoding(n.E, n.r)

    def call(query, key, value):
        bias = keys(query, key.shape[2])
        weights = attention_weights(query, key, bias=bias)
        return weights @ value + values.output(weights)

    return call, (keys.keys, values.values)


def build_rotary(n):
    angle = rotary_angles(torch.arange(max(n.T, n.S)), frequencies(n.D))

    def call(query, key, value):
        return attend(
            apply_rotary(query, angle[: n.T]),
            apply_rotary(key, angle[: n.S]),
            value,
        )

    return call, ()


CALLS = {
    "with Shaw's vectors": call_heads(build_shaw),
    "with T5's bias": call_biased(lambda n: T5Bias(n.H, n.b)),
    "with ALiBi": call_biased(lambda n: AlibiBias(n.H)),
    "rotary": call_heads(build_rotary),
}
