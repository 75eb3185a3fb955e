import math

import pytest
import torch

from attnbook.attention.scaled_dot_product import attention_weights
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
    alibi,
    alibi_slopes,
    distances,
    relative_bias,
    shaw_bias,
    shaw_output,
    t5_bucket,
)
from attnbook.positions.rotary import (
    apply_rotary,
    halves_permutation,
    rotary_angles,
    rotate,
    rotate_halves,
    rotate_partly,
)

B, H, T, S, D = 2, 3, 5, 7, 6
C = 10
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


def test_sinusoidal_encodings_exist_at_any_real_position():
    table = sinusoidal(T, C)
    torch.testing.assert_close(SinusoidalEncoding(C)(torch.arange(2, T)), table[2:])
    half = sinusoidal_at(torch.tensor([0.5]), C)[0]
    assert half[0] == pytest.approx(math.sin(0.5))


@pytest.mark.parametrize("by", [0, 1, 4, -3, 0.5])
def test_one_matrix_shifts_sinusoidal_encodings_from_any_position(by):
    positions = torch.arange(T, dtype=torch.float32)
    moved = sinusoidal_at(positions + by, C)
    ours = sinusoidal_at(positions, C) @ shift_matrix(by, C).T
    torch.testing.assert_close(ours, moved, atol=1e-5, rtol=0)


def test_learned_encodings_are_rows_of_a_table():
    learned = LearnedEncoding(T, C)
    found = learned(torch.tensor([3, 0, 3]))
    assert torch.equal(found, learned.table[[3, 0, 3]])


@pytest.mark.refusal
def test_positions_outside_the_table_are_refused():
    for positions in ([0, T], [-1, 2]):
        with pytest.raises(ValueError, match=f"positions 0 to {T - 1}"):
            LearnedEncoding(T, C)(torch.tensor(positions))
    for width in (0, 5):
        with pytest.raises(ValueError, match=f"not {width}"):
            frequencies(width)
    with pytest.raises(ValueError, match="not 0"):
        alibi_slopes(0)
    with pytest.raises(ValueError, match="cannot have 4"):
        relative_bias(torch.zeros(H, 4), T, T)


def test_the_last_query_is_aligned_with_the_last_key():
    assert distances(2, 4).tolist() == [[-2, -1, 0, 1], [-3, -2, -1, 0]]
    assert distances(3, 3).tolist() == [[0, 1, 2], [-1, 0, 1], [-2, -1, 0]]


def test_alibis_slopes_are_the_papers():
    eight = [2.0**-n for n in range(1, 9)]
    torch.testing.assert_close(alibi_slopes(8), torch.tensor(eight))
    sixteen = [2 ** (-n / 2) for n in range(1, 17)]
    torch.testing.assert_close(alibi_slopes(16), torch.tensor(sixteen))
    between = alibi_slopes(12)  # as in the authors' code: 8, then half of 16
    assert torch.equal(between[:8], alibi_slopes(8))
    assert torch.equal(between[8:], alibi_slopes(16)[:8:2])


def test_alibi_subtracts_the_slope_for_each_step_of_distance():
    bias = AlibiBias(4)(T, S)
    assert torch.equal(bias, alibi(4, T, S))
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


def test_shaws_bias_and_output_are_the_formulas():
    query, table = drawn(B, H, T, D), drawn(2 * 2 + 1, D)
    weights, values = drawn(B, H, T, S).softmax(-1), drawn(2 * 2 + 1, C)
    row = distances(T, S).clamp(-2, 2) + 2
    bias = torch.einsum("bhtd,tsd->bhts", query, table[row]) / D**0.5
    torch.testing.assert_close(shaw_bias(query, table, S), bias)
    output = torch.einsum("bhts,tse->bhte", weights, values[row])
    torch.testing.assert_close(shaw_output(weights, values), output)


def test_shaws_module_holds_two_tables():
    module = ShawEncoding(D, reach=2).double()
    assert module.keys.shape == module.values.shape == (5, D)
    query, weights = drawn(B, H, T, D), drawn(B, H, T, S).softmax(-1)
    assert torch.equal(module(query, S), shaw_bias(query, module.keys, S))
    expected = shaw_output(weights, module.values)
    assert torch.equal(module.output(weights), expected)


@pytest.mark.parametrize("turning", [rotate, rotate_halves])
def test_rotary_scores_depend_on_the_distance_alone(turning):
    query, key = drawn(B, H, T, D), drawn(B, H, S, D)
    t, s = torch.arange(T), torch.arange(S)
    scores = turning(query, t) @ turning(key, s).mT
    moved = turning(query, t + 1000) @ turning(key, s + 1000).mT
    torch.testing.assert_close(scores, moved)
    assert not torch.allclose(scores, turning(query, t + 1) @ turning(key, s).mT)


def test_a_rotation_is_the_papers_matrix():
    x = drawn(1, 1, T, D)
    steps = frequencies(D, 100.0, torch.float64)
    for p in range(T):
        block = torch.block_diag(
            *[
                torch.tensor([[a.cos(), -a.sin()], [a.sin(), a.cos()]])
                for a in p * steps
            ]
        )
        ours = rotate(x, torch.arange(T), base=100.0)
        torch.testing.assert_close(ours[0, 0, p], block @ x[0, 0, p])


def test_a_permutation_of_columns_leads_from_one_pairing_to_the_other():
    x, order = drawn(B, H, T, D), halves_permutation(D)
    positions = torch.arange(T)
    assert order.tolist() == [0, 2, 4, 1, 3, 5]
    torch.testing.assert_close(
        rotate(x, positions)[..., order],
        rotate_halves(x[..., order], positions),
    )
    assert not torch.allclose(rotate(x, positions), rotate_halves(x, positions))


def test_each_sequence_of_a_batch_can_have_its_own_positions():
    x = drawn(B, H, T, D)
    positions = torch.stack([torch.arange(T), torch.arange(T) + 3])
    together = rotate(x, positions[:, None])
    for b in range(B):
        torch.testing.assert_close(together[b], rotate(x[b : b + 1], positions[b])[0])


def test_half_precision_distinguishes_large_positions():
    x = drawn(1, 1, 2, D)
    positions = torch.tensor([1000, 1001])  # alike in bfloat16
    exact = rotate(x, positions)
    ours = rotate(x.bfloat16(), positions)
    assert ours.dtype == torch.bfloat16
    assert (ours.double() - exact).abs().max() < 0.03 * x.abs().max()


def test_rotations_are_not_cumulative_and_keep_lengths():
    x = drawn(B, H, T, D)
    still = apply_rotary(x, rotary_angles(torch.zeros(T), frequencies(D)).double())
    torch.testing.assert_close(still, x)
    torch.testing.assert_close(rotate(x, torch.arange(T)).norm(dim=-1), x.norm(dim=-1))


def test_a_position_bias_works_with_the_reference():
    query, key = drawn(B, 4, T, D), drawn(B, 4, S, D)
    bias = alibi(4, T, S).double()
    weights = attention_weights(query, key, bias=bias)
    expected = (query @ key.mT / D**0.5 + bias).softmax(-1)
    torch.testing.assert_close(weights, expected)


def test_partial_rope_rotates_the_first_columns_as_a_narrower_head():
    x, positions = drawn(B, H, T, D), torch.arange(T) + 3
    ours = rotate_partly(x, positions, 4)
    torch.testing.assert_close(ours[..., :4], rotate(x[..., :4], positions))
    assert torch.equal(ours[..., 4:], x[..., 4:])
    torch.testing.assert_close(rotate_partly(x, positions, D), rotate(x, positions))


def test_partial_rope_depends_on_distance_only():
    query, key = drawn(B, H, T, D), drawn(B, H, S, D)
    t, s = torch.arange(S - T, S), torch.arange(S)
    one, other = (
        rotate_partly(query, t + by, 2) @ rotate_partly(key, s + by, 2).mT
        for by in (0, 40)
    )
    torch.testing.assert_close(one, other)


@pytest.mark.refusal
def test_no_more_columns_are_rotated_than_there_are():
    with pytest.raises(ValueError, match="8 columns cannot be rotated"):
        rotate_partly(drawn(B, H, T, D), torch.arange(T), 8)
