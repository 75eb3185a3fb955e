"""A row of the census, from a small model made up for it.

tests/oracles/against_census.py reads the real models.
"""

from types import SimpleNamespace

import pytest

from workshop.derive.attention_census import describe_model, drop_repetitions

pytestmark = pytest.mark.precision

HEADER = """# Copyright (c) 2025 The Authors
@auto_docstring(checkpoint="lab/model-1")
class ModelConfig:
    kinds = ["sliding_attention", "linear_attention"]
"""
MODELING = """class ModelAttention(Module):
    def __init__(self):
        self.sinks = Parameter(empty(4))

class ModelLinearAttention(Module):
    def forward(self, x, gate):
        return x * sigmoid(gate)
"""


def test_a_model_is_described_by_its_softmax_attention():
    config = SimpleNamespace(
        model_type="made-up",
        num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=128,
        num_attention_heads=8,
        num_key_value_heads=2,
    )
    row = describe_model("model", config, HEADER, MODELING)
    assert row == {
        "model": "model",
        "checkpoint": "lab/model-1",
        "year": "2025",
        "layers": 2,
        "kinds": "1 window, 1 full",
        "other_kinds": "linear",
        "window": "128",
        "heads": "8",
        "key_value_heads": "2",
        "latent": "",
        "selection": "",
        "sinks": "yes",
        "gate": "",
    }
    config.layer_types = ["new_attention"]
    with pytest.raises(ValueError, match="kind 'new_attention'; known are"):
        describe_model("model", config, HEADER, MODELING)
    twice = [row, row | {"model": "model_text"}, row | {"layers": 3}]
    assert [x["layers"] for x in drop_repetitions(iter(twice))] == [2, 3]
