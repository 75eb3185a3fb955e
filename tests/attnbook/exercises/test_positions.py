"""The short solutions of chapter 8 do what the library does."""

import pytest
import torch

from attnbook.exercises import positions as checks
from attnbook.positions import absolute, biases, rotary


@pytest.mark.parametrize(("length", "width"), [(1, 2), (17, 6), (5, 64)])
def test_the_sinusoidal_encodings_equal_the_library(length, width):
    ours = checks.check_sinusoidal.solution(length, width)
    torch.testing.assert_close(ours, absolute.sinusoidal(length, width))


@pytest.mark.parametrize("base", [10000.0, 100.0])
def test_the_rotation_equals_the_library(base):
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 5, 14, generator=rng)
    positions = torch.tensor([0, 7, 3, 40, 41])
    ours = checks.check_rotate.solution(x, positions, base)
    theirs = rotary.rotate(x, positions, base)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("heads", [1, 8, 16])
def test_the_alibi_bias_equals_the_library_up_to_the_query(heads):
    ours = checks.check_alibi.solution(heads, 5, 7).tril(2)
    theirs = biases.alibi(heads, 5, 7).tril(2)
    torch.testing.assert_close(ours, theirs)
