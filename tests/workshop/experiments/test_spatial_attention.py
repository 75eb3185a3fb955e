"""The study of spatial attention, and what was recorded of it."""

import pytest
import torch

from attnbook.models.spatial_attention import SpatialAttentionPooling
from attnbook.records import read_record
from workshop.experiments import spatial_attention as study


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(study, "STEPS", 2)
    monkeypatch.setattr(study, "TRAINED", 40)
    monkeypatch.setattr(study, "TESTED", 30)
    study.draw_split.cache_clear()
    yield
    study.draw_split.cache_clear()


def test_the_four_kinds_are_counted():
    inside = torch.tensor([True, True, True, False])
    right = torch.tensor([True, False, False, True])
    assert study.count_agreement(inside, right) == {
        "inside, right": 1,
        "inside, wrong": 2,
        "outside, right": 1,
        "outside, wrong": 0,
    }


def test_train_and_test_are_drawn_from_other_images(quick):
    train, tests = study.draw_split("train", 40), study.draw_split("test", 30)
    assert train.images.shape == (40, 1, 56, 56)
    assert not torch.equal(train.images[:30], tests.images)
    chance = study.measure_chance(tests)
    assert 0.08 < chance["area"] < 0.12
    assert 0.3 < chance["light"] < 0.6


@pytest.mark.long
@pytest.mark.parametrize("pooling", study.POOLINGS)
def test_a_pooling_is_trained_and_scored(quick, pooling):
    row, model = study.run_pooling(pooling, 0)
    again, _ = study.run_pooling(pooling, 0)
    assert row == again
    assert isinstance(model.pooling, study.POOLINGS[pooling])
    assert ("map" in row) == (pooling != "maximum")
    if pooling == "attention":
        assert sum(row["map"]["counts"].values()) == 30
        assert abs(row["untrained"]["mass"] - 0.1) < 0.02


@torch.no_grad()
def test_examples_show_each_kind_at_most_twice(quick):
    model = study.build_model("attention", 0)
    assert isinstance(model.pooling, SpatialAttentionPooling)
    examples = study.describe_examples(model)
    assert 2 <= len(examples) <= 8
    for one in examples:
        total = torch.tensor(one["thousandths"]).sum()
        assert abs(total - 1000) < 0.5 * study.GRID**2
        assert 0 < one["mass"] < 1


def list_recorded(pooling):
    rows = read_record("spatial_attention")["results"]["rows"]
    found = [x for x in rows if x["pooling"] == pooling]
    assert [x["seed"] for x in found] == [*study.SEEDS]
    return found


def test_the_record_is_that_of_these_models():
    record = read_record("spatial_attention")
    assert record["seeds"] == [*study.SEEDS]
    assert (record["steps"], record["rate"]) == (study.STEPS, study.RATE)
    numbers = record["results"]["parameters"]
    assert len({*numbers.values()}) == 1
    assert numbers["mean"] == study.count_parameters(study.build_model("mean", 0))
    chance = record["results"]["chance"]
    assert chance == pytest.approx(
        study.measure_chance(study.draw_split("test", study.TESTED)), abs=1e-4
    )


def test_recorded_attention_is_in_the_box_far_above_chance():
    chance = read_record("spatial_attention")["results"]["chance"]
    for row in list_recorded("attention"):
        assert abs(row["untrained"]["mass"] - chance["area"]) < 0.01
        assert row["map"]["mass"] > chance["light"] + 0.3
        counts = row["map"]["counts"]
        assert sum(counts.values()) == study.TESTED
        right = counts["inside, right"] + counts["outside, right"]
        assert right / study.TESTED == pytest.approx(row["accuracy"])
        assert counts["inside, wrong"] > 100


def test_the_recorded_maximum_is_more_accurate_than_attention():
    pooled = zip(*map(list_recorded, study.POOLINGS), strict=True)
    for attention, mean, largest in pooled:
        assert largest["accuracy"] > attention["accuracy"] + 0.05
        assert attention["accuracy"] > mean["accuracy"] + 0.2
        chance = read_record("spatial_attention")["results"]["chance"]
        assert mean["map"]["mass"] < chance["light"]
