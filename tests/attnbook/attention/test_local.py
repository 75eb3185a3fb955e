import math

import pytest
import torch

from attnbook.attention.recurrent import (
    DotScore,
    GeneralScore,
    GlobalAttention,
    MonotonicAttention,
    PredictiveAttention,
    gaussian_window,
    local_window,
)

SEED = torch.Generator().manual_seed(0)
QUERY = torch.randn(2, 3, 8, generator=SEED)
MEMORY = torch.randn(2, 11, 8, generator=SEED)
LENGTHS = torch.tensor([11, 4])


def call(attention, query=QUERY, memory=MEMORY, lengths=LENGTHS, step=0):
    return attention(query, attention.key(memory), memory, lengths, step)


def test_a_window_goes_equally_far_to_both_sides_and_ends_at_the_ends():
    centre = torch.tensor([[0.0, 2.5, 6.0, 9.0]])
    window = local_window(centre, 7, 2)[0]
    seen = [row.nonzero()[:, 0].tolist() for row in window]
    assert seen == [[0, 1, 2], [1, 2, 3, 4], [4, 5, 6], []]


def test_the_gaussian_is_that_of_the_paper():
    near = gaussian_window(torch.tensor([[1.5]]), 4, 2.0)[0, 0]
    expected = [math.exp(-((s - 1.5) ** 2) / 8) for s in range(4)]
    torch.testing.assert_close(near, torch.tensor(expected))


def test_global_attention_averages_the_real_memory():
    context, weights = call(GlobalAttention(DotScore(8, 8)))
    for b, n in enumerate(LENGTHS):
        wanted = (QUERY[b] @ MEMORY[b, :n].T).softmax(-1)
        torch.testing.assert_close(weights[b, :, :n], wanted)
        torch.testing.assert_close(context[b], wanted @ MEMORY[b, :n])
    assert (weights[1, :, 4:] == 0).all()


def test_padding_has_no_effect_even_if_it_is_nan():
    broken = MEMORY.clone()
    broken[1, 4:] = torch.nan
    attention = GlobalAttention(DotScore(8, 8))
    context, _ = call(attention, memory=broken)
    assert torch.equal(context, call(attention)[0])


def test_a_monotonic_window_follows_the_step_and_stops_at_the_last_word():
    attention = MonotonicAttention(DotScore(8, 8), reach=1)
    _, weights = call(attention)
    seen = [row.nonzero()[:, 0].tolist() for row in weights[0]]
    assert seen == [[0, 1], [0, 1, 2], [1, 2, 3]]
    _, later = call(attention, step=7)
    assert [r.nonzero()[:, 0].tolist() for r in later[1]] == [[2, 3]] * 3
    torch.testing.assert_close(later.sum(-1), torch.ones(2, 3))


def test_a_predicted_window_multiplies_by_the_gaussian():
    torch.manual_seed(3)
    attention = PredictiveAttention(GeneralScore(8, 8), 8, 5, reach=2)
    _, weights = call(attention)
    real = torch.arange(11) < LENGTHS[:, None, None]
    centre = attention.center(QUERY, real).detach()
    assert (centre >= 0).all()
    assert (centre <= LENGTHS[:, None] - 1).all()
    scores = attention.score(QUERY, attention.key(MEMORY))
    for b in range(2):
        for t in range(3):
            c = float(centre[b, t])
            n = int(LENGTHS[b])
            inside = [s for s in range(n) if abs(s - c) <= 2]
            row = scores[b, t, inside].softmax(-1)
            near = [math.exp(-((s - c) ** 2) / 2) for s in inside]
            wanted = torch.zeros(11)
            wanted[inside] = row * torch.tensor(near)
            torch.testing.assert_close(weights[b, t], wanted)


def test_the_center_gets_its_gradient_from_the_gaussian_alone():
    attention = PredictiveAttention(GeneralScore(8, 8), 8, 5, reach=2)
    context, _ = call(attention)
    context.square().sum().backward()
    assert attention.predict[0].weight.grad.abs().sum() > 0


def test_nothing_is_changed_in_place():
    kept = MEMORY.clone()
    call(MonotonicAttention(DotScore(8, 8), 1))
    assert torch.equal(MEMORY, kept)


@pytest.mark.refusal
def test_a_negative_reach_is_refused():
    with pytest.raises(ValueError, match="at least 0, not -1"):
        local_window(torch.zeros(1, 1), 3, -1)
