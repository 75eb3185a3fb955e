"""The recorded errors of self-attention without some of its projections."""

import torch

from attnbook.models.relation_model import PROJECTIONS, RELATIONS
from attnbook.records import read_record
from workshop.experiments.projections import (
    COLORS,
    NAMES,
    SEEDS,
    STEPS,
    WIDTH,
    train_relation,
)


def test_every_version_is_recorded_on_both_relations_with_every_seed():
    record = read_record("projections")
    sizes = {
        "names": NAMES,
        "colors": COLORS,
        "width": WIDTH,
        "steps": [*STEPS],
    }
    assert {name: record[name] for name in sizes} == sizes
    runs = record["results"]["runs"]
    found = {(r["relation"], r["version"], r["seed"]) for r in runs}
    assert found == {
        (relation, version, seed)
        for relation in RELATIONS
        for version in PROJECTIONS
        for seed in SEEDS
    }
    assert len(runs) == len(found)
    assert all(len(r["errors"]) == len(STEPS) for r in runs)


def test_the_seed_determines_a_run():
    torch.manual_seed(0)
    one = train_relation("W_q = W_k", "partner", 3, steps=[20])
    torch.manual_seed(1)
    assert train_relation("W_q = W_k", "partner", 3, steps=[20]) == one
    assert train_relation("W_q = W_k", "partner", 4, steps=[20]) != one


def test_a_short_run_with_three_projections_learns_the_recorded_relation():
    found = train_relation("three projections", "successor", 0, steps=[300])
    assert found["errors"][0] < 0.4
