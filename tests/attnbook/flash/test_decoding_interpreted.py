"""The decoding kernels in Triton's interpreter, in a process of its own."""

from functools import partial
from itertools import product

import pytest
import torch

from decoding_cases import CASES, IN_HALF
from kernel_runs import INTERPRETED, interpret_kernels
from precision import BOUNDS

pytestmark = INTERPRETED
interpreted = partial(interpret_kernels, "interpret_decoding.py")


@pytest.mark.parametrize(
    ("title", "dtype"),
    [*product(CASES, ["float32"]), *product(IN_HALF, ["float16"])],
)
def test_interpreted_kernels_equal_the_reference(title, dtype):
    for way in "cache", "pages":
        found = interpreted()[title, dtype][way]
        assert found["difference"] <= BOUNDS[getattr(torch, dtype)], way
        assert found["unharmed"], way
        assert found["same"], way


@pytest.mark.parametrize(
    ("title", "parts"),
    [("several parts", 3), ("an empty sequence, and one key", 2)],
)
def test_the_kernel_merges_as_merge_does(title, parts):
    found = interpreted()[f"merged: {title}", None]
    assert found["parts"] == parts
    assert found["difference"] <= 1e-6


def test_no_number_leads_outside_the_pool():
    found = interpreted()["bounds", None]
    assert found["same"]
    assert found["finite"]


def test_offsets_beyond_a_tile_are_computed_in_64_bits():
    assert not interpreted()["narrow", None]["overflows"]
