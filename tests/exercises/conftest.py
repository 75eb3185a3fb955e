"""The exercises' fresh inputs are the same in every run of the tests."""

import secrets

import pytest


@pytest.fixture(autouse=True)
def the_same_fresh_inputs(monkeypatch):
    monkeypatch.setattr(secrets, "randbits", lambda bits: 7)
