import math

import pytest
import torch

from attnbook.attention.recurrent import (
    ConcatScore,
    DotScore,
    GeneralScore,
    GlobalAttention,
    LocationScore,
    MonotonicAttention,
    PredictiveAttention,
    ScaledDotScore,
    additive_scores,
    additive_scores_in_blocks,
    concat_scores,
    dot_scores,
    general_scores,
    local_window,
    location_scores,
)
from attnbook.profiling.allocations import measure_peak_bytes
from precision import draw

QUERY, KEY = draw((2, 3, 7), (2, 5, 11))


def test_every_score_is_its_formula_for_every_pair():
    W, V, v, W_query, W_key = draw((7, 11), (13, 18), (13,), (13, 7), (13, 11))
    general = general_scores(QUERY, KEY, W)
    concat = concat_scores(QUERY, KEY, V, v)
    dot = dot_scores(QUERY, KEY[..., :7])
    additive = additive_scores(QUERY, KEY, W_query, W_key, v)
    for b in range(2):
        for t in range(3):
            for s in range(5):
                q, k = QUERY[b, t], KEY[b, s]
                pairs = (
                    (general, q @ W @ k),
                    (concat, v @ torch.tanh(V @ torch.cat([q, k]))),
                    (dot, q @ k[:7]),
                    (additive, v @ torch.tanh(W_query @ q + W_key @ k)),
                )
                for ours, formula in pairs:
                    torch.testing.assert_close(ours[b, t, s], formula)


def test_modules_agree_with_the_functions():
    torch.manual_seed(0)
    query, key = QUERY.float(), KEY.float()
    general = GeneralScore(7, 11)
    torch.testing.assert_close(
        general(query, general.key(key)),
        general_scores(query, key, general.key.weight),
    )
    concat = ConcatScore(7, 11, 13)
    torch.testing.assert_close(
        concat(query, concat.key(key)),
        concat_scores(query, key, concat.matrix, concat.v),
    )
    dot, scaled = DotScore(7, 7), ScaledDotScore(7, 7)
    near = key[..., :7]
    assert torch.equal(dot(query, dot.key(near)), dot_scores(query, near))
    torch.testing.assert_close(scaled(query, near), dot(query, near) / 7**0.5)
    location = LocationScore(7, 6)
    torch.testing.assert_close(
        location(query, location.key(key)),
        location_scores(query, location.place.weight, 5),
    )


@pytest.mark.refusal
def test_widths_that_do_not_fit_are_refused():
    general, concat, v = draw((11, 7), (13, 17), (13,))
    with pytest.raises(ValueError, match="query is 7 wide and the key 11"):
        dot_scores(QUERY, KEY)
    with pytest.raises(ValueError, match=r"W is \(11, 7\).*\(7, 11\) wide"):
        general_scores(QUERY, KEY, general)
    with pytest.raises(ValueError, match=r"width 17 but.*7 \+ 11 = 18"):
        concat_scores(QUERY, KEY, concat, v)
    with pytest.raises(ValueError, match="at least 0, not -1"):
        local_window(torch.zeros(1, 1), 3, -1)


# Additive scores without the tensor of all pairs.


def additive_inputs(T=11):
    return draw((2, T, 7), (2, 5, 3), (13, 7), (13, 3), (13,))


@pytest.mark.parametrize(("T", "rows"), [(1, None), (11, 4)])
def test_scores_in_blocks_equal_additive_scores(T, rows):
    inputs = additive_inputs(T)
    inputs[0] = inputs[0].transpose(0, 1).contiguous().transpose(0, 1)
    before = [x.clone() for x in inputs]
    found = additive_scores_in_blocks(*inputs, rows=rows)
    torch.testing.assert_close(found, additive_scores(*inputs))
    assert all(map(torch.equal, inputs, before))


def test_the_default_block_size_covers_every_query_in_less_memory(monkeypatch):
    inputs = additive_inputs(50)
    monkeypatch.setattr("attnbook.attention.recurrent.BUFFER_SIZE", 3 * 2 * 5 * 13)
    expected = additive_scores(*inputs)
    torch.testing.assert_close(additive_scores_in_blocks(*inputs), expected)
    blocks = measure_peak_bytes(lambda: additive_scores_in_blocks(*inputs))
    assert blocks < measure_peak_bytes(lambda: additive_scores(*inputs)) / 3


@pytest.mark.refusal
def test_blocks_without_queries_and_gradients_are_refused():
    inputs = additive_inputs()
    with pytest.raises(ValueError, match="at least 1 query, not 0"):
        additive_scores_in_blocks(*inputs, rows=0)
    inputs[4].requires_grad_()
    with pytest.raises(ValueError, match="no gradient can flow"):
        additive_scores_in_blocks(*inputs)
    with torch.no_grad():
        assert additive_scores_in_blocks(*inputs).shape == (2, 11, 5)


# Global and local attention.

STATES, MEMORY = (x.float() for x in draw((2, 3, 8), (2, 11, 8)))
LENGTHS = torch.tensor([11, 4])


def call(attention, memory=MEMORY, step=0):
    return attention(STATES, attention.key(memory), memory, LENGTHS, step)


def list_seen(rows):
    return [row.nonzero()[:, 0].tolist() for row in rows]


def test_a_window_goes_equally_far_to_both_sides_and_ends_at_the_ends():
    window = local_window(torch.tensor([[0.0, 2.5, 6.0, 9.0]]), 7, 2)[0]
    assert list_seen(window) == [[0, 1, 2], [1, 2, 3, 4], [4, 5, 6], []]


def test_global_attention_averages_the_real_memory():
    broken = MEMORY.clone()
    broken[1, 4:] = torch.nan
    context, weights = call(GlobalAttention(DotScore(8, 8)), broken)
    for b, n in enumerate(LENGTHS):
        wanted = (STATES[b] @ MEMORY[b, :n].T).softmax(-1)
        torch.testing.assert_close(weights[b, :, :n], wanted)
        torch.testing.assert_close(context[b], wanted @ MEMORY[b, :n])
    assert (weights[1, :, 4:] == 0).all()


def test_a_monotonic_window_follows_the_step_and_stops_at_the_last_word():
    attention = MonotonicAttention(DotScore(8, 8), reach=1)
    _, weights = call(attention)
    assert list_seen(weights[0]) == [[0, 1], [0, 1, 2], [1, 2, 3]]
    _, later = call(attention, step=7)
    assert list_seen(later[1]) == [[2, 3]] * 3
    torch.testing.assert_close(later.sum(-1), torch.ones(2, 3))


def test_a_predicted_window_multiplies_by_the_gaussian():
    torch.manual_seed(3)
    attention = PredictiveAttention(GeneralScore(8, 8), 8, 5, reach=2)
    _, weights = call(attention)
    real = torch.arange(11) < LENGTHS[:, None, None]
    centre = attention.center(STATES, real).detach()
    assert (centre >= 0).all()
    assert (centre <= LENGTHS[:, None] - 1).all()
    scores = attention.score(STATES, attention.key(MEMORY))
    for b in range(2):
        for t in range(3):
            c = float(centre[b, t])
            inside = [s for s in range(int(LENGTHS[b])) if abs(s - c) <= 2]
            near = [math.exp(-((s - c) ** 2) / 2) for s in inside]
            wanted = torch.zeros(11)
            wanted[inside] = scores[b, t, inside].softmax(-1) * torch.tensor(near)
            torch.testing.assert_close(weights[b, t], wanted)
