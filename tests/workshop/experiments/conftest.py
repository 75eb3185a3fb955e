"""Tests of recorded runs wait for no run that this machine does meanwhile."""

import pytest

from workshop.experiments import cores


@pytest.fixture(autouse=True)
def locks_of_the_test(monkeypatch, tmp_path_factory):
    monkeypatch.setattr(cores, "LOCKS", tmp_path_factory.mktemp("cores"))
