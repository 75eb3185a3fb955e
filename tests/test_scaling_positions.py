import math

import pytest
import torch

from attnbook.positions.added import frequencies
from attnbook.positions.rotary import angles
from attnbook.positions.scaling import (
    interpolated,
    ntk_aware,
    yarn,
    yarn_scale,
)

D = 16


def test_a_factor_of_one_changes_nothing():
    plain = frequencies(D)
    torch.testing.assert_close(interpolated(D, 1), plain)
    torch.testing.assert_close(ntk_aware(D, 1), plain)
    torch.testing.assert_close(yarn(D, 1, 64), plain)
    assert yarn_scale(1) == yarn_scale(0.5) == 1


def test_interpolation_squeezes_positions():
    longer = angles(torch.arange(0, 64, 4), interpolated(D, 4))
    torch.testing.assert_close(longer, angles(torch.arange(16), frequencies(D)))


def test_ntk_keeps_the_fastest_and_divides_the_slowest():
    ratio = frequencies(D) / ntk_aware(D, 8)
    assert ratio[0] == 1
    assert ratio[-1] == pytest.approx(8, rel=1e-4)
    assert (ratio.diff() > 0).all()


def test_yarn_keeps_fast_pairs_and_divides_slow_ones():
    length = 4096
    plain, scaled = frequencies(D), yarn(D, 8, length)
    turns = length * plain / (2 * math.pi)
    assert torch.equal(scaled[turns > 32], plain[turns > 32])
    slow = turns < 1
    assert slow.any() and (turns > 32).any()
    torch.testing.assert_close(scaled[slow], plain[slow] / 8)
    between = ~slow & (turns < 32)
    assert between.any()
    ramp = (turns[between] - 1) / 31
    expected = plain[between] * (ramp + (1 - ramp) / 8)
    torch.testing.assert_close(scaled[between], expected)


def test_yarns_scale_is_its_fit():
    assert yarn_scale(8) == pytest.approx(0.1 * math.log(8) + 1)


@pytest.mark.refusal
def test_a_single_pair_cannot_be_scaled_by_its_base():
    with pytest.raises(ValueError, match="not 2"):
        ntk_aware(2, 4)
