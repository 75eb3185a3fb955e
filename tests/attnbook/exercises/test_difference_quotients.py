"""A known mistake computed without a loop is the same mistake."""

import pytest
import torch

from attnbook.exercises.before_you_start.gradient import (
    difference_quotients,
    sum_squares,
)


@pytest.mark.parametrize("size", [1, 7, 31])
def test_all_quotients_at_once_are_those_of_a_loop(size):
    rng = torch.Generator().manual_seed(size)
    x = torch.randn(size, generator=rng, dtype=torch.float64)
    step = 1e-4
    moved = torch.stack(
        [sum_squares(x + step * row) for row in torch.eye(size).double()]
    )
    looped = (moved - sum_squares(x)) / step
    # Rounding of a value below 1, divided by the step.
    torch.testing.assert_close(
        difference_quotients(x), looped, rtol=0, atol=1e-16 * 100 / step
    )
