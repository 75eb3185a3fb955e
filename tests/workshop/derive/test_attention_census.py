"""The rules of the census, on configurations and classes made up for them.

tests/oracles/against_census.py reads the real ones.
"""

from types import SimpleNamespace

import pytest

from workshop.derive.attention_census import (
    COLUMNS,
    count_kinds,
    describe_model,
    describe_selection,
    describe_size,
    drop_repetitions,
    find_year,
    read_attention_classes,
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


def test_a_learned_selection_is_described():
    assert describe_selection(make(index_topk=2048)) == "2048 keys"
    blocks = make(index_topk_blocks=16, index_block_size=128)
    assert describe_selection(blocks) == "16 blocks of 128"
    assert describe_selection(make(indexer_budget=512)) == "512 keys"
    assert describe_selection(make(indexer_budget=None)) == "not said"
    assert describe_selection(make()) == ""


def test_sizes_that_differ_between_layers_are_all_named():
    parts = [make(heads=8), make(heads=16), make(heads=8)]
    mixed = make(is_heterogeneous=True, per_layer_config=parts)
    assert describe_size(mixed, "heads") == "8/16"
    assert describe_size(make(heads=4), "heads") == "4"
    assert describe_size(make(), "heads") == ""


def test_only_softmax_attention_to_text_is_searched():
    found = read_attention_classes(MODELING)
    assert "sinks" in found
    assert "Linear" not in found
    assert "MLP" not in found


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


def test_the_same_row_under_two_names_is_listed_once():
    rows = [
        {"model": "a", "layers": 1},
        {"model": "a_text", "layers": 1},
        {"model": "b", "layers": 2},
    ]
    assert [row["model"] for row in drop_repetitions(iter(rows))] == ["a", "b"]


def test_the_year_is_that_of_the_copyright():
    assert find_year("# Copyright (c) 2026 Lab\n# Copyright 2024") == "2026"
    assert find_year("no licence") == ""
