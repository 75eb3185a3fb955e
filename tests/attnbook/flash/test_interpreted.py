"""The Triton kernels in Triton's interpreter, in a process of its own."""

from itertools import product

import pytest
import torch

import decoding_cases
import flash_cases
from kernel_runs import INTERPRETED, interpret_kernels
from precision import BOUNDS

pytestmark = INTERPRETED


def list_runs(cases):
    return [
        *product(cases.CASES, ["float32"]),
        *product(cases.IN_HALF, ["float16"]),
    ]


PACKED_RUNS = product(flash_cases.PACKED, ["float32", "float16"])


@pytest.mark.parametrize(("title", "dtype"), [*list_runs(flash_cases), *PACKED_RUNS])
def test_interpreted_kernels_equal_the_reference(title, dtype):
    found = interpret_kernels()[title, dtype]
    assert found["difference"] <= BOUNDS[getattr(torch, dtype)]
    assert found["unharmed"]


@pytest.mark.parametrize("title", flash_cases.WITH_LSE)
def test_an_interpreted_logsumexp_and_its_gradient_equal_the_reference(title):
    found = interpret_kernels()[f"lse: {title}", "float32"]
    assert found["difference"] <= BOUNDS[torch.float32]
    assert found["unharmed"]


@pytest.mark.parametrize("way", ["cache", "pages"])
@pytest.mark.parametrize(("title", "dtype"), list_runs(decoding_cases))
def test_interpreted_decoding_equals_the_reference(title, dtype, way):
    found = interpret_kernels()[f"{way}: {title}", dtype]
    assert found["difference"] <= BOUNDS[getattr(torch, dtype)]
    assert found["unharmed"]


def test_numbers_outside_the_pool_are_bounded():
    assert interpret_kernels()["bounds", None]["same"]
