"""The records of SmolLM2's heads are complete and agree with each other."""

import pytest
import torch

from attnbook.models.smollm2 import SHA256
from attnbook.records import read_record
from workshop.experiments import (
    smollm2_ablation,
    smollm2_circuits,
    smollm2_heads,
    smollm2_inputs,
    smollm2_patching,
    smollm2_sinks,
)

LAYERS, HEADS, GROUPS = 30, 9, 3
SEQUENCES = smollm2_inputs.EACH * len(smollm2_inputs.LENGTHS)


def read(name):
    record = read_record(name)
    assert record["sha256"] == SHA256
    return record["results"]


def table(rows, *shape):
    found = torch.tensor(rows, dtype=torch.float64)
    assert found.shape == (LAYERS, *shape)
    return found


def test_scores_are_shares_of_the_weight():
    results = read("smollm2_heads")
    assert results["scores"].keys() == smollm2_heads.PATTERNS.keys()
    for name in smollm2_heads.PATTERNS:
        scores = table(results["scores"][name], HEADS)
        assert scores.min() >= 0 and scores.max() <= 1
        assert 0 < results["chance"][name] < 0.15
        table(results["text"][name], HEADS)
        table(results["deviations"][name], HEADS)
    for name in ("duplicate", "induction"):
        table(results["controls"][name], HEADS)
    distances = torch.tensor(results["distances"])
    assert distances.shape == (smollm2_heads.REACH + 1, LAYERS, HEADS)
    assert distances.sum(0).max() <= 1.3


def test_the_two_patterns_of_a_repetition_share_the_weight():
    scores = read("smollm2_heads")["scores"]
    both = table(scores["duplicate"], HEADS) + table(scores["induction"], HEADS)
    assert both.max() <= 1.0005


def test_sets_of_heads_are_those_with_the_highest_scores():
    rows = read("smollm2_ablation")["sets"]
    wanted = smollm2_ablation.list_sets(HEADS)
    assert len(rows) == len(wanted)
    for row, expected in zip(rows, wanted, strict=True):
        assert row["name"] == expected["name"]
        assert [tuple(head) for head in row["heads"]] == expected["set"]
        assert row["mean"] == bool(expected.get("mean"))
        count = smollm2_ablation.SET_EACH * len(smollm2_inputs.LENGTHS)
        assert len(row["copy"]) == len(row["accuracy"]) == count
        assert len(row["text"]) == smollm2_ablation.SET_TEXTS


def test_copying_needs_the_induction_heads_more_than_random_ones():
    rows = read("smollm2_ablation")["sets"]

    def accuracies(name, mean):
        return [
            sum(row["accuracy"]) / len(row["accuracy"])
            for row in rows
            if row["name"] == name
            and row["mean"] == mean
            and len(row["heads"]) in (0, smollm2_ablation.SIZE)
        ]

    (whole,) = accuracies("whole", False)
    for mean in (False, True):
        (best,) = accuracies("induction", mean)
        assert best < 0.5 * min(accuracies("random", mean)) < 0.5 * whole + 0.05


def test_single_heads_have_a_row_for_each_sequence():
    singles = read("smollm2_ablation")["singles"]
    copies = smollm2_ablation.SINGLE_EACH * len(smollm2_inputs.LENGTHS)
    for name in ("zero", "mean"):
        table(singles[name], HEADS, copies)
    assert len(singles["whole"]) == copies


def test_shares_of_patches_follow_from_the_logit_differences():
    results = read("smollm2_patching")
    clean, corrupted = (
        torch.tensor(results[x], dtype=torch.float64) for x in ("clean", "corrupted")
    )
    assert len(clean) == len(corrupted) == smollm2_patching.SEQUENCES
    patched = table(results["patched"], HEADS, smollm2_patching.SEQUENCES)
    lost = (clean - corrupted).mean()
    shares = (patched - corrupted).mean(-1) / lost
    torch.testing.assert_close(
        shares, table(results["shares"], HEADS), atol=2e-3, rtol=0
    )
    places = results["places"]
    assert len(places) == smollm2_patching.LOOKED_AT
    best = smollm2_ablation.rank_heads(table(results["shares"], HEADS))
    assert [tuple(row["head"]) for row in places] == best[: len(places)]


def test_sinks_are_measured_after_three_beginnings():
    results = read("smollm2_sinks")
    assert results["weights"].keys() == {*("start symbol", "random token", "nothing")}
    for weights in results["weights"].values():
        assert 0 <= table(weights, HEADS).min() <= 1
    for position in (
        "position 0",
        "position 1",
        "position 1, mask 0",
        f"position {smollm2_sinks.OTHER}",
    ):
        assert table(results[position]["stream"]).min() > 0
        assert table(results[position]["value"], GROUPS).min() > 0
    assert all(
        len(losses) == smollm2_sinks.TEXTS for losses in results["losses"].values()
    )


def test_circuits_have_curves_and_tables():
    results = read("smollm2_circuits")
    assert len(results["curves"]) == 2 * smollm2_circuits.SHOWN
    for curve in results["curves"]:
        for pairs in ("match", "other"):
            found = curve[pairs]
            assert len(found["mean"]) == smollm2_circuits.REACH
            assert len(found["deviation"]) == smollm2_circuits.REACH
            assert sum(found["variance"].values()) == pytest.approx(1, abs=1e-3)
    for name in ("stream", "embedding"):
        for share in (
            table(results[name]["top"], HEADS),
            table(results[name]["rank"], HEADS),
        ):
            assert share.min() >= 0 and share.max() <= 1
