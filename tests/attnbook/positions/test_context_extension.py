import math

import pytest
import torch

from attnbook.positions.absolute import frequencies
from attnbook.positions.context_extension import (
    interpolate_positions,
    scale_ntk_aware,
    scale_yarn,
    yarn_attention_factor,
)
from attnbook.positions.rotary import rotary_angles

D = 16


def test_a_factor_of_one_changes_nothing():
    plain = frequencies(D)
    torch.testing.assert_close(interpolate_positions(D, 1), plain)
    torch.testing.assert_close(scale_ntk_aware(D, 1), plain)
    torch.testing.assert_close(scale_yarn(D, 1, 64), plain)
    assert yarn_attention_factor(1) == yarn_attention_factor(0.5) == 1


def test_interpolation_squeezes_positions():
    longer = rotary_angles(torch.arange(0, 64, 4), interpolate_positions(D, 4))
    torch.testing.assert_close(
        longer, rotary_angles(torch.arange(16), frequencies(D))
    )


def test_ntk_keeps_the_fastest_and_divides_the_slowest():
    ratio = frequencies(D) / scale_ntk_aware(D, 8)
    assert ratio[0] == 1
    assert ratio[-1] == pytest.approx(8, rel=1e-4)
    assert (ratio.diff() > 0).all()


def test_yarn_keeps_fast_pairs_and_divides_slow_ones():
    length = 4096
    plain, scaled = frequencies(D), scale_yarn(D, 8, length)
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


def test_the_attention_factor_of_yarn_is_the_papers_formula():
    assert yarn_attention_factor(8) == pytest.approx(0.1 * math.log(8) + 1)


@pytest.mark.refusal
def test_a_single_pair_cannot_be_scaled_by_its_base():
    with pytest.raises(ValueError, match="not 2"):
        scale_ntk_aware(2, 4)
