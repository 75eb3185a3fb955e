"""The Triton kernels in Triton's interpreter, in a process of its own."""

from functools import partial
from itertools import product

import pytest
import torch

from flash_cases import CASES, IN_HALF
from kernel_runs import INTERPRETED, interpret_kernels
from precision import BOUNDS

pytestmark = INTERPRETED
interpreted = partial(interpret_kernels, "interpret.py")


@pytest.mark.parametrize(
    ("title", "dtype"),
    [*product(CASES, ["float32"]), *product(IN_HALF, ["float16"])],
)
def test_interpreted_kernels_equal_the_reference(title, dtype):
    found = interpreted()[title, dtype]
    assert max(found["differences"]) <= BOUNDS[getattr(torch, dtype)]
    assert found["unharmed"]
    assert found["same"]


def test_interpreted_kernels_read_sequences_2_to_the_31_apart():
    assert interpreted()["far apart", "float16"]["same"]


def test_offsets_beyond_a_tile_are_computed_in_64_bits():
    assert not interpreted()["narrow", "float32"]["overflows"]
