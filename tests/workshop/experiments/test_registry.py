"""Experiments register in the module that defines them."""

import pytest

from workshop.experiments import registry
from workshop.experiments.registry import (
    EXPERIMENTS,
    HOMES,
    RUNS,
    experiment,
    find_experiments,
    register_runs,
)


@pytest.fixture
def empty(monkeypatch):
    """Replace the tables of registered experiments with empty ones."""
    for name in ("EXPERIMENTS", "RUNS", "HOMES"):
        monkeypatch.setattr(registry, name, {})


def test_every_experiment_is_found_once_with_its_module():
    found = find_experiments()
    assert len(found) == len({*found}) == len(RUNS) + len(EXPERIMENTS)
    assert HOMES["context_probe"] == "workshop.experiments.probes"
    assert HOMES["grammar_fixed_0"] == "workshop.experiments.runs"
    assert all(x.run.__name__ == x.name for x in EXPERIMENTS.values())


def test_a_decorated_function_is_registered_and_unchanged(empty):
    def count_words():
        return {}

    assert experiment(on_cpu=True)(count_words) is count_words
    made = registry.EXPERIMENTS["count_words"]
    assert made.run is count_words
    assert made.on_cpu
    assert made.module == __name__


@pytest.mark.refusal
def test_two_modules_cannot_define_experiments_of_one_name(empty):
    def count_words():
        return {}

    experiment()(count_words)
    with pytest.raises(ValueError, match=r"'count_words': in .* and in other"):
        register_runs({"count_words": None}, "other")
