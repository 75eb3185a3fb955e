"""The decoding kernels in Triton's interpreter, in a process of its own."""

from functools import partial

import pytest

from decoding_cases import CASES
from kernel_runs import INTERPRETED, interpret_kernels

pytestmark = [*INTERPRETED]
interpreted = partial(interpret_kernels, "interpret_decoding.py")


@pytest.mark.parametrize("way", ["cache", "pages"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("title", CASES)
def test_interpreted_kernels_equal_the_reference(title, dtype, way):
    found = interpreted()[title, dtype][way]
    assert found["share"] <= 1
    assert found["unharmed"]
    assert found["same"]


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
    """In kernels without one of the conversions, an offset passes the limit."""
    found = interpreted()["narrow", None]
    assert not found["overflows"]
    assert len(found["without"]) == 4
    assert all(found["without"].values()), found["without"]
