"""Probes of a context vector: one a length, beside the level of chance."""

import random

import pytest
import torch
from torch import nn

from attnbook.data import Pair, Splits
from attnbook.data.vocabulary import PAD
from attnbook.training.tasks import Task
from workshop.experiments import probes

pytestmark = pytest.mark.precision


def make_pairs(words):
    return tuple(Pair(tuple(word), ("x",)) for word in words)


def draw_letters(lengths, seed):
    rng = random.Random(seed)
    return ["".join(rng.choices("abc", k=n)) for n in lengths]


class FirstLetter(nn.Module):
    """A stand-in encoder whose context vector is the word's first id."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, source, lengths):
        assert (source[torch.arange(len(source)), lengths - 1] != PAD).all()
        self.last = source[:, :1].float() * self.weight
        return self


def test_the_chance_level_is_the_share_of_the_most_frequent_letter():
    known = make_pairs(["ab", "ac", "bc", "ac"])  # most often: a, then c
    tested = make_pairs(["ab", "bc", "cc", "bc", "ac"])
    level = probes.measure_chance_level(None, known, tested)
    assert level == [2 / 5, 4 / 5]


def test_the_chance_level_comes_from_known_words_not_from_tested_ones():
    known, tested = make_pairs(["a", "a", "b"]), make_pairs(["b", "b"])
    assert probes.measure_chance_level(None, known, tested) == [0.0]


@pytest.mark.parametrize("count", [None, 2])
def test_each_length_has_a_probe_of_its_own(monkeypatch, count):
    train = make_pairs(draw_letters((6, 9, 12, 7) * 3, seed=1))
    tested = make_pairs(draw_letters((6, 9, 12, 7), seed=2))
    data = Task(Splits(train, tested, tested))
    model = nn.Module()
    model.encoder = FirstLetter()
    seen = []

    def fit(vectors, wanted, symbols):
        seen.append((len(vectors), wanted.shape, bool((wanted == PAD).any())))
        return nn.Linear(vectors.shape[1], wanted.shape[1] * symbols)

    monkeypatch.setattr(probes, "fit_probe", fit)
    read = probes.probe_encoder(model, data, count)
    rows = count or 3
    assert seen == [(rows, (rows, n), False) for n in probes.LENGTHS]
    assert {int(n): len(shares) for n, shares in read.items()} == {
        n: n for n in probes.LENGTHS
    }
