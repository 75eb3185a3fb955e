"""The Triton kernels in Triton's interpreter, in a process of its own."""

from functools import partial

import pytest

from flash_cases import CASES
from kernel_runs import INTERPRETED, interpret_kernels

pytestmark = INTERPRETED
interpreted = partial(interpret_kernels, "interpret.py")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("title", CASES)
def test_interpreted_kernels_equal_the_reference(title, dtype):
    found = interpreted()[title, dtype]
    assert max(found["shares"]) <= 1
    assert found["unharmed"]
    assert found["same"]


def test_interpreted_kernels_read_sequences_2_to_the_31_apart():
    assert interpreted()["far apart", "float16"]["same"]


def test_exactly_the_tiles_that_need_a_mask_are_masked():
    assert interpreted()["ranges", "int32"]["wrong"] == []


def test_offsets_beyond_a_tile_are_computed_in_64_bits():
    """In kernels without one of the conversions, an offset passes the limit."""
    found = interpreted()["narrow", "float32"]
    assert not found["overflows"]
    assert len(found["without"]) == 6
    assert all(found["without"].values()), found["without"]
