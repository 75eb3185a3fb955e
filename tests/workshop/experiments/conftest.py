"""Tests of recorded runs wait for no run, and write no record of the book."""

import pytest
import torch

from workshop.experiments import record


@pytest.fixture(autouse=True)
def records_of_the_test(monkeypatch, tmp_path):
    threads = torch.get_num_threads()
    monkeypatch.setattr(record, "RECORDS", tmp_path)
    monkeypatch.setattr(record, "WEIGHTS", tmp_path)
    yield tmp_path
    torch.set_num_threads(threads)
