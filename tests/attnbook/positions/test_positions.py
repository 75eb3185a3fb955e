"""Positions: each encoding against its paper's formula or its authors' code."""

import math

import pytest
import torch

from attnbook.positions.absolute import (
    LearnedEncoding,
    SinusoidalEncoding,
    frequencies,
    shift_matrix,
    sinusoidal,
    sinusoidal_at,
)
from attnbook.positions.biases import (
    AlibiBias,
    ShawEncoding,
    T5Bias,
    alibi_slopes,
    distances,
    relative_bias,
    t5_bucket,
)
from attnbook.positions.rotary import (
    halves_permutation,
    interpolate_positions,
    rotary_angles,
    rotate,
    rotate_halves,
    rotate_partly,
    scale_llama3,
    scale_ntk_aware,
    scale_yarn,
)

B, H, T, S, D = 2, 3, 5, 7, 6
C = 10
WIDE = 16
DRAW = torch.Generator().manual_seed(0)


def drawn(*shape, dtype=torch.float64):
    return torch.randn(*shape, generator=DRAW, dtype=dtype)


def test_sinusoidal_encodings_are_the_papers_formula():
    table = sinusoidal(T, C)
    for p in range(T):
        for i in range(C // 2):
            angle = p / 10000 ** (2 * i / C)
            assert table[p, 2 * i] == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[p, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-6)
    torch.testing.assert_close(SinusoidalEncoding(C)(torch.arange(2, T)), table[2:])


@pytest.mark.parametrize("by", [4, -3, 0.5])
def test_one_matrix_shifts_sinusoidal_encodings_from_any_position(by):
    positions = torch.arange(T, dtype=torch.float32)
    moved = sinusoidal_at(positions + by, C)
    ours = sinusoidal_at(positions, C) @ shift_matrix(by, C).T
    torch.testing.assert_close(ours, moved, atol=1e-5, rtol=0)


def test_learned_encodings_are_rows_of_a_table():
    learned = LearnedEncoding(T, C)
    found = learned(torch.tensor([3, 0, 3]))
    assert torch.equal(found, learned.table[[3, 0, 3]])


def test_the_last_query_is_aligned_with_the_last_key():
    assert distances(2, 4).tolist() == [[-2, -1, 0, 1], [-3, -2, -1, 0]]


def test_alibis_slopes_are_the_papers():
    eight = [2.0**-n for n in range(1, 9)]
    torch.testing.assert_close(alibi_slopes(8), torch.tensor(eight))
    between = alibi_slopes(12)  # as in the authors' code: 8, then half of 16
    sixteen = torch.tensor([2 ** (-n / 2) for n in range(1, 17)])
    torch.testing.assert_close(between[:8], torch.tensor(eight))
    torch.testing.assert_close(between[8:], sixteen[:8:2])


def test_alibi_subtracts_the_slope_for_each_step_of_distance():
    bias = AlibiBias(4)(T, S)
    for h, slope in enumerate(alibi_slopes(4)):
        for t in range(T):
            for s in range(S):
                away = abs(t + S - T - s)
                assert bias[h, t, s] == pytest.approx(-float(slope) * away)


def test_a_relative_bias_is_looked_up_and_clipped():
    table = drawn(H, 2 * 2 + 1)
    bias = relative_bias(table, T, S)
    for t in range(T):
        for s in range(S):
            column = max(-2, min(2, s - (t + S - T))) + 2
            assert torch.equal(bias[:, t, s], table[:, column])


def test_t5s_buckets_are_those_of_its_code():
    both = t5_bucket(torch.tensor([0, -1, -7, -8, -127, -128, -999]))
    assert both.tolist() == [0, 1, 7, 8, 15, 15, 15]
    after = t5_bucket(torch.tensor([1, 7, 8, 11, 12, 999]))
    assert after.tolist() == [17, 23, 24, 24, 25, 31]
    one = t5_bucket(torch.tensor([5, 0, -15, -16, -18, -19, -128]), bidirectional=False)
    assert one.tolist() == [0, 0, 15, 16, 16, 17, 31]


def test_t5s_bias_is_looked_up_in_its_buckets():
    module = T5Bias(H, buckets=8, max_distance=5, bidirectional=False)
    with torch.no_grad():
        module.table.copy_(drawn(H, 8))
    bucket = t5_bucket(distances(T, S), 8, 5, bidirectional=False)
    assert bucket.unique().tolist() == [0, 1, 2, 3, 4, 7]
    assert torch.equal(module(T, S), module.table[:, bucket])


def test_shaws_terms_are_the_formulas():
    module = ShawEncoding(D, reach=2).double()
    query, weights = drawn(B, H, T, D), drawn(B, H, T, S).softmax(-1)
    row = distances(T, S).clamp(-2, 2) + 2
    bias = torch.einsum("bhtd,tsd->bhts", query, module.keys[row]) / D**0.5
    torch.testing.assert_close(module(query, S), bias)
    output = torch.einsum("bhts,tse->bhte", weights, module.values[row])
    torch.testing.assert_close(module.output(weights), output)


@pytest.mark.parametrize(
    "turn", [rotate, rotate_halves, lambda x, p: rotate_partly(x, p, 2)]
)
def test_rotary_scores_depend_on_the_distance_alone(turn):
    query, key = drawn(B, H, T, D), drawn(B, H, S, D)
    t, s = torch.arange(T), torch.arange(S)
    scores = turn(query, t) @ turn(key, s).mT
    moved = turn(query, t + 1000) @ turn(key, s + 1000).mT
    torch.testing.assert_close(scores, moved)
    assert not torch.allclose(scores, turn(query, t + 1) @ turn(key, s).mT)


def test_a_rotation_is_the_papers_matrix():
    x = drawn(1, 1, T, D)
    ours = rotate(x, torch.arange(T), base=100.0)
    for p in range(T):
        angles = p * frequencies(D, 100.0, torch.float64)
        blocks = [[[a.cos(), -a.sin()], [a.sin(), a.cos()]] for a in angles]
        matrix = torch.block_diag(*map(torch.tensor, blocks))
        torch.testing.assert_close(ours[0, 0, p], matrix @ x[0, 0, p])


def test_a_permutation_of_columns_leads_from_one_pairing_to_the_other():
    x, order = drawn(B, H, T, D), halves_permutation(D)
    positions = torch.arange(T)
    torch.testing.assert_close(
        rotate(x, positions)[..., order], rotate_halves(x[..., order], positions)
    )
    assert not torch.allclose(rotate(x, positions), rotate_halves(x, positions))


def test_half_precision_distinguishes_large_positions():
    x = drawn(1, 1, 2, D)
    positions = torch.tensor([1000, 1001])  # alike in bfloat16
    ours = rotate(x.bfloat16(), positions)
    assert ours.dtype == torch.bfloat16
    assert (ours.double() - rotate(x, positions)).abs().max() < 0.03 * x.abs().max()


def test_partial_rope_rotates_the_first_columns_as_a_narrower_head():
    x, positions = drawn(B, H, T, D), torch.arange(T) + 3
    ours = rotate_partly(x, positions, 4)
    torch.testing.assert_close(ours[..., :4], rotate(x[..., :4], positions))
    assert torch.equal(ours[..., 4:], x[..., 4:])


def test_interpolation_squeezes_positions():
    longer = rotary_angles(torch.arange(0, 64, 4), interpolate_positions(WIDE, 4))
    plain = rotary_angles(torch.arange(16), frequencies(WIDE))
    torch.testing.assert_close(longer, plain)


def test_ntk_keeps_the_fastest_and_divides_the_slowest():
    ratio = frequencies(WIDE) / scale_ntk_aware(WIDE, 8)
    assert ratio[0] == 1
    assert ratio[-1] == pytest.approx(8, rel=1e-4)
    assert (ratio.diff() > 0).all()


def test_yarn_keeps_fast_pairs_and_divides_slow_ones():
    length = 4096
    plain, scaled = frequencies(WIDE), scale_yarn(WIDE, 8, length)
    turns = length * plain / (2 * math.pi)
    ramp = ((turns - 1) / 31).clamp(0, 1)
    assert (ramp == 0).any() and (ramp == 1).any() and (ramp % 1 > 0).any()
    torch.testing.assert_close(scaled, plain * (ramp + (1 - ramp) / 8))


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


def test_llama_3_is_scaled_as_in_its_code():
    theirs = apply_scaling(frequencies(128, 5e5), 8, 8192)
    torch.testing.assert_close(scale_llama3(128), theirs)
    theirs = apply_scaling(frequencies(64, 5e5), 32, 4096)
    torch.testing.assert_close(scale_llama3(64, 32, 4096), theirs)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: LearnedEncoding(T, C)(torch.tensor([0, T])),
            f"positions 0 to {T} were given, but the table has positions 0 to {T - 1}",
        ),
        (lambda: LearnedEncoding(T, C)(torch.tensor([-1, 2])), "positions -1 to 2"),
        (lambda: frequencies(5), "not 5"),
        (lambda: frequencies(0), "not 0"),
        (lambda: alibi_slopes(0), "not 0"),
        (lambda: relative_bias(torch.zeros(H, 4), T, T), "cannot have 4"),
        (lambda: scale_ntk_aware(2, 4), "not 2"),
        (
            lambda: rotate_partly(drawn(B, H, T, D), torch.arange(T), 8),
            "8 columns cannot be rotated: x has 6",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_both_values(call, message):
    with pytest.raises(ValueError, match=message):
        call()
