"""The Triton kernels in Triton's interpreter, in a process of its own."""

from itertools import product

import pytest
import torch

import decoding_cases
import flash_cases
from kernel_runs import INTERPRETED, interpret_kernels, list_runs
from precision import BOUNDS

pytestmark = INTERPRETED
RUNS = [
    *list_runs(flash_cases),
    *product(flash_cases.PACKED, ["float32", "float16"]),
    *((f"lse: {title}", "float32") for title in flash_cases.WITH_LSE),
    *((f"cache: {title}", dtype) for title, dtype in list_runs(decoding_cases)),
    *((f"pages: {title}", dtype) for title, dtype in list_runs(decoding_cases)),
]


@pytest.mark.parametrize(("title", "dtype"), RUNS)
def test_interpreted_kernels_equal_the_reference(title, dtype):
    found = interpret_kernels()[title, dtype]
    assert found["difference"] <= BOUNDS[getattr(torch, dtype)]
    assert found["unharmed"]


@pytest.mark.parametrize("what", ["bounds", "offsets"])
def test_numbers_on_a_gpu_lead_to_no_memory_outside(what):
    assert interpret_kernels()[what, None]["unharmed"]
