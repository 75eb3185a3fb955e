import math
from itertools import pairwise

import pytest
import torch

from attnbook.positions.absolute import frequencies
from attnbook.positions.rotary import (
    interpolate_positions,
    rotary_angles,
    scale_dynamic_ntk,
    scale_llama3,
    scale_ntk_aware,
    scale_yarn,
)

D = 16


def test_a_factor_of_one_changes_nothing():
    plain = frequencies(D)
    torch.testing.assert_close(interpolate_positions(D, 1), plain)
    torch.testing.assert_close(scale_ntk_aware(D, 1), plain)
    torch.testing.assert_close(scale_yarn(D, 1, 64), plain)


def test_interpolation_squeezes_positions():
    longer = rotary_angles(torch.arange(0, 64, 4), interpolate_positions(D, 4))
    torch.testing.assert_close(longer, rotary_angles(torch.arange(16), frequencies(D)))


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


def apply_scaling(rates, factor, length, low=1, high=4):
    """Return frequencies as Meta's code computes them, one after the other."""
    found = []
    for rate in rates.tolist():
        wavelength = 2 * math.pi / rate
        if wavelength < length / high:
            found.append(rate)
        elif wavelength > length / low:
            found.append(rate / factor)
        else:
            smooth = (length / wavelength - low) / (high - low)
            found.append((1 - smooth) * rate / factor + smooth * rate)
    return torch.tensor(found)


@pytest.mark.parametrize(
    ("width", "factor", "length", "base"),
    [(128, 8, 8192, 5e5), (64, 32, 8192, 5e5), (16, 2, 64, 1e4)],
)
def test_llama_3_is_scaled_as_in_its_code(width, factor, length, base):
    ours = scale_llama3(width, factor, length, base)
    theirs = apply_scaling(frequencies(width, base), factor, length)
    torch.testing.assert_close(ours, theirs)
    between = (ours < frequencies(width, base)) & (
        ours > 1.001 * frequencies(width, base) / factor
    )
    assert between.any()


def test_the_defaults_of_llama_3_are_those_of_its_models():
    torch.testing.assert_close(
        scale_llama3(128), apply_scaling(frequencies(128, 5e5), 8, 8192)
    )


def test_dynamic_scaling_begins_beyond_the_trained_length():
    plain = frequencies(D)
    for length in 1, 63, 64:
        assert torch.equal(scale_dynamic_ntk(D, length, 64), plain)
    slower = [scale_dynamic_ntk(D, n, 64)[-1] for n in (64, 65, 100, 500)]
    assert all(one > other for one, other in pairwise(slower))
    torch.testing.assert_close(
        scale_dynamic_ntk(D, 160, 64, 500.0), scale_ntk_aware(D, 2.5, 500.0)
    )


@pytest.mark.refusal
def test_a_single_pair_cannot_be_scaled_by_its_base():
    with pytest.raises(ValueError, match="not 2"):
        scale_ntk_aware(2, 4)
