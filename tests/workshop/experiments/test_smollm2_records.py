"""The records of SmolLM2 with selected keys are complete and agree.

tests/oracles/against_recorded.py compares some of their numbers with those of
the real weights.
"""

import pytest
import torch

from attnbook.models.smollm2 import SHA256
from attnbook.records import read_record
from workshop.experiments import smollm2_indexer, smollm2_keys, smollm2_map
from workshop.experiments.smollm2_text import LENGTH, PASSAGES, TRAINING

LAYERS, HEADS, GROUPS = 30, 9, 3


def read(name):
    record = read_record(name)
    assert record["sha256"] == SHA256
    return record["results"]


def test_the_map_has_64_tokens_and_seven_heads():
    (example,) = read("smollm2_map")["examples"]
    assert len(example["tokens"]) == smollm2_map.LENGTH
    kinds = [head["kind"] for head in example["heads"]]
    assert kinds == [
        *("sink", "previous", "local", "induction", "far", "spread"),
        "mean",
    ]
    named = {(x["layer"], x["head"]) for x in example["heads"]}
    assert len(named) == 7
    for head in example["heads"]:
        for t, row in enumerate(head["thousandths"]):
            assert len(row) == t + 1
            # Each of t + 1 numbers was rounded by at most half.
            assert abs(sum(row) - 1000) <= (t + 1) / 2
    assert example["heads"][0]["share"] > 0.9


def check_rows(rows):
    for row in rows:
        assert len(row["losses"]) == len(row["kept_weight"]) == PASSAGES
        assert all(1 < loss < 12 for loss in row["losses"])
        assert all(0 < share <= 1.00001 for share in row["kept_weight"])
        most = HEADS / GROUPS * row["keys"]
        assert row["keys"] <= row["group_keys"] * 1.00001 <= most * 1.0001
        assert row["group_blocks"] <= row["group_keys"] * 1.00001


def test_the_keys_are_those_of_every_variant():
    results = read("smollm2_keys")
    rows = results["variants"]
    variants = smollm2_keys.list_variants()
    assert [row["name"] for row in rows] == [v.name for v in variants]
    check_rows(rows)
    keys = {row["name"]: row["keys"] for row in rows}
    half = range(LENGTH // 2 + 1, LENGTH + 1)
    assert keys["full"] == pytest.approx(sum(half) / len(half), rel=1e-4)
    assert keys["window 64, 4 sinks"] == pytest.approx(68, rel=1e-4)
    assert keys["oracle top 32"] == pytest.approx(32, rel=1e-4)
    # Seven whole blocks, and the own one up to the query.
    assert keys["mean keys, 8 blocks of 16"] == pytest.approx(7 * 16 + 8.5, rel=1e-4)
    assert len(results["bytes"]) == PASSAGES
    for name in (
        "first_token_weight",
        "needed_keys",
        "needed_keys_without_first",
    ):
        table = torch.tensor(results[name], dtype=torch.double)
        assert table.shape == (PASSAGES, LAYERS, HEADS)
        assert (table >= 0).all()


def test_more_of_the_largest_weights_are_kept_with_more_keys():
    rows = {x["name"]: x for x in read("smollm2_keys")["variants"]}
    for few, many in ((8, 32), (32, 128)):
        less, more = (rows[f"oracle top {n}"]["kept_weight"] for n in (few, many))
        assert all(a < b for a, b in zip(less, more, strict=True))


def test_the_indexer_is_compared_at_equal_numbers_of_keys():
    results = read("smollm2_indexer")
    check_rows(results["variants"])
    for row in results["variants"]:
        # The own block holds 8.5 keys up to the query, on average.
        missing = 7.5 if row["kind"] == "mean keys" else 0
        assert row["keys"] == pytest.approx(row["budget"] - missing, rel=1e-4)
    count = PASSAGES * len(TRAINING)
    assert len(results["training_divergence"]) == count
    assert results["training_symbols"] == count * LENGTH
    first, last = (
        sum(part) / 6
        for part in (
            results["training_divergence"][:6],
            results["training_divergence"][-6:],
        )
    )
    assert last < first
    assert results["indexer"] == {
        "heads": smollm2_indexer.HEADS,
        "size": smollm2_indexer.SIZE,
        "rate": smollm2_indexer.RATE,
    }
