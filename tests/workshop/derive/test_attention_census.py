"""The rules of the census, on configurations and classes made up for them.

tests/oracles/against_census.py reads the real ones.
"""

from types import SimpleNamespace

import pytest

from workshop.derive.attention_census import (
    COLUMNS,
    count_kinds,
    describe_model,
)

pytestmark = pytest.mark.precision

HEADER = """# Copyright 2025 The Authors
@auto_docstring(checkpoint="lab/model-1")
class ModelConfig:
    kinds = ["sliding_attention", "linear_attention"]
"""
MODELING = """class ModelAttention(Module):
    def __init__(self):
        self.sinks = Parameter(empty(4))
    def forward(self, x):
        return x * torch.sigmoid(self.gate_proj(x))

class ModelLinearAttention(Module):
    def forward(self, x, gate):
        return x * sigmoid(gate)

class ModelMLP(Module):
    def forward(self, x, gate):
        return x * sigmoid(gate)
"""


def make(**values):
    return SimpleNamespace(model_type="made-up", **values)


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        (
            make(
                num_hidden_layers=3,
                layer_types=["sliding_attention"] * 2 + ["full_attention"],
            ),
            {"window": 2, "full": 1},
        ),
        (
            make(
                num_hidden_layers=3,
                layers_block_type=["mamba", "moe", "attention"],
            ),
            {"linear": 1, "full": 1},
        ),
        (make(num_hidden_layers=4, num_attention_heads=2), {"full": 4}),
        (
            make(num_hidden_layers=4, num_attention_heads=2, sliding_window=8),
            {"window": 4},
        ),
        (
            make(
                num_hidden_layers=4,
                num_attention_heads=2,
                sliding_window=8,
                use_sliding_window=False,
            ),
            {"full": 4},
        ),
        (make(num_hidden_layers=5), {"linear": 5}),
    ],
)
def test_layers_are_counted_by_kind(config, kinds):
    assert count_kinds(config) == kinds


@pytest.mark.refusal
def test_an_unknown_kind_of_layer_is_refused():
    config = make(num_hidden_layers=1, layer_types=["new_attention"])
    with pytest.raises(ValueError, match="kind 'new_attention'; known are"):
        count_kinds(config)


def test_a_row_has_every_column():
    config = make(
        num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=128,
        num_attention_heads=8,
        num_key_value_heads=2,
    )
    row = describe_model("model", config, HEADER, MODELING)
    assert tuple(row) == COLUMNS
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
        "gate": "yes",
    }
    plain = describe_model(
        "model",
        make(num_hidden_layers=1, num_attention_heads=8, sliding_window=None),
        "",
        "class ModelMLP:\n    pass\n",
    )
    assert (plain["sinks"], plain["gate"], plain["window"]) == ("", "", "")
    assert (plain["year"], plain["key_value_heads"]) == ("", "8")
