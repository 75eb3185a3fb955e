"""Attention rollout against a sum over all paths, and by hand."""

from itertools import pairwise, product

import torch

from attnbook.diagnose.weights import attention_rollout

L, H, T = 3, 2, 5


def make_weights():
    rng = torch.Generator().manual_seed(0)
    shape = L, H, T, T
    scores = torch.randn(shape, generator=rng, dtype=torch.float64)
    return scores.softmax(-1)


def test_rollout_is_the_sum_over_all_paths_from_an_input_to_an_output():
    weights = make_weights()
    layers = (weights.mean(1) + torch.eye(T)) / 2
    paths = torch.zeros(T, T, dtype=torch.float64)
    for path in product(range(T), repeat=L + 1):  # the input first
        share = torch.ones((), dtype=torch.float64)
        for layer, (before, after) in zip(layers, pairwise(path), strict=True):
            share = share * layer[after, before]
        paths[path[-1], path[0]] += share
    torch.testing.assert_close(attention_rollout(weights), paths)


def test_rows_sum_to_one_even_where_a_query_has_no_keys():
    weights = make_weights()
    weights[:, :, 0] = 0.0
    rollout = attention_rollout(weights)
    torch.testing.assert_close(rollout.sum(-1), torch.ones(T).double())
    assert rollout[0, 0] == 1.0


def test_without_layers_every_output_is_its_input():
    assert torch.equal(attention_rollout(torch.zeros(0, H, T, T)), torch.eye(T))


def test_by_hand_two_layers_that_attend_to_the_position_before():
    """Half stays in each layer: 1/4, 1/2 and 1/4 of three positions."""
    before = torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 1, 0]])
    rollout = attention_rollout(before.expand(2, 1, 3, 3))
    assert rollout[2].tolist() == [0.25, 0.5, 0.25]
