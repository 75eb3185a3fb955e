"""Every stored record fits its schema, and an experiment makes it again."""

import math
from dataclasses import fields
from datetime import datetime

import pytest

from attnbook.records import list_records, read_record
from workshop.experiments.record import RUNS, find_experiments

pytestmark = pytest.mark.precision
KNOWN = find_experiments()
OLD_NAMES = {"norm_placement": "norm"}


def list_numbers(value):
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list):
        return [x for part in value for x in list_numbers(part)]
    return [value] if isinstance(value, int | float) else []


@pytest.mark.parametrize("name", list_records())
def test_a_record_fits_its_schema(name):
    record = read_record(name)
    assert name in KNOWN
    assert record["command"] == f"python -m workshop.experiments {name}"
    assert all(type(seed) is int for seed in record["seeds"])
    assert record["device"] and {"python", "torch"} <= {*record["versions"]}
    assert datetime.fromisoformat(record["date"]).tzinfo
    assert record["wall_s"] > 0 and record["cpu_s"] > 0
    numbers = list_numbers(record["results"])
    assert numbers and all(map(math.isfinite, numbers))


def test_every_experiment_has_a_record():
    assert {*KNOWN} == {*list_records()}


@pytest.mark.parametrize("name", RUNS)
def test_a_training_run_is_repeated_with_its_recorded_settings(name):
    record, run = read_record(name), RUNS[name]
    assert record["recipe"] == vars(run.recipe)
    model = {k: v for k, v in vars(run).items() if k != "recipe"}
    # A record made before a setting existed had its default; six records have an
    # older name of another one.
    defaults = {f.name: f.default for f in fields(run) if f.name in model}
    recorded = {OLD_NAMES.get(k, k): v for k, v in record["model"].items()}
    assert defaults | recorded == model
