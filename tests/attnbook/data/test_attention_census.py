"""The stored table of models, and some of its rows, read by hand.

They were compared with the files of configuration and model in
transformers 5.23.0; tests/oracles/against_census.py reads them all again.
"""

import pytest

from attnbook.data.attention_census import load_census

pytestmark = pytest.mark.precision

BY_HAND = {
    "gpt_oss": {
        "kinds": {"window": 18, "full": 18},
        "window": "128",
        "heads": "64",
        "key_value_heads": "8",
        "sinks": True,
        "gate": False,
        "selection": "",
    },
    "deepseek_v32": {
        "kinds": {"selected": 61},
        "heads": "128",
        "latent": "512",
        "selection": "2048 keys",
        "sinks": False,
    },
    "qwen3_next": {
        "kinds": {"linear": 36, "full": 12},
        "heads": "16",
        "key_value_heads": "2",
        "gate": True,
        "sinks": False,
    },
    "llama4": {
        "kinds": {"chunk": 36, "full": 12},
        "window": "8192",
        "heads": "40",
        "key_value_heads": "8",
    },
    "lfm2": {"kinds": {"full": 32}, "other_kinds": ("convolution",)},
}


def test_the_rows_read_by_hand_are_those_stored():
    for name, expected in BY_HAND.items():
        (row,) = (row for row in load_census() if row["model"] == name)
        assert {x: row[x] for x in expected} == expected, name


def test_every_row_is_complete():
    for row in load_census():
        assert row["year"] in (2025, 2026)
        assert sum(row["kinds"].values()) == row["layers"] > 0
        assert row["heads"] or {*row["kinds"]} == {"linear"}
        assert not {*row["kinds"]} & {*row["other_kinds"]}
        shown = bool(row["window"])
        local = any(
            word in kind
            for kind in row["kinds"]
            for word in ("window", "chunk", "compressed")
        )
        assert shown == local
