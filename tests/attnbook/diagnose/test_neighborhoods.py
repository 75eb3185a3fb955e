"""Weight on right neighbors, and weights shuffled within neighborhoods."""

import torch

from attnbook.diagnose.neighborhoods import (
    measure_mass,
    shuffle_within_targets,
)

TARGET = torch.tensor([2, 0, 2, 0, 2, 3])


def test_mass_and_chance_are_shares_of_a_neighborhood():
    weights = torch.tensor([0.5, 0.9, 0.3, 0.1, 0.2, 1.0])
    right = torch.tensor([True, False, False, True, True, True])
    mass, chance = measure_mass(weights, TARGET, right, 4)
    torch.testing.assert_close(mass[[0, 2, 3]], torch.tensor([0.1, 0.7, 1.0]))
    torch.testing.assert_close(chance[[0, 2, 3]], torch.tensor([1 / 2, 2 / 3, 1]))
    assert mass[1].isnan() and chance[1].isnan()


def test_shuffling_keeps_the_weights_of_each_neighborhood():
    weights = torch.arange(12.0).view(2, 6)
    rng = torch.Generator().manual_seed(0)
    seen = set()
    for _ in range(50):
        made = shuffle_within_targets(weights, TARGET, rng)
        for node in (0, 2, 3):
            there = node == TARGET
            assert made[:, there].sort(-1).values.equal(weights[:, there])
        assert made[1].equal(made[0] + 6)
        seen.add(tuple(made[0].tolist()))
    assert len(seen) == 12  # 3! orders of three edges, 2! of two
