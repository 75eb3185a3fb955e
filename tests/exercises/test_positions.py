"""Exercises on positions: right answers of several kinds, and wrong ones."""

import math

import numpy as np
import torch

from answers import make_tests
from attnbook.exercises import positions as checks
from attnbook.positions import rotary


def rotate_column_by_column(x, positions, base=10000.0):
    D = x.shape[-1]
    out = torch.empty_like(x)
    for i in range(D // 2):
        angle = positions.double() / base ** (2 * i / D)
        sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
        a, b = x[..., 2 * i], x[..., 2 * i + 1]
        out[..., 2 * i] = a * cosine - b * sine
        out[..., 2 * i + 1] = a * sine + b * cosine
    return out


def rotate_through_halves(x, positions, base=10000.0):
    order = rotary.halves_permutation(x.shape[-1])
    return rotary.rotate_halves(x[..., order], positions, base)[..., order.argsort()]


def rotate_at_short_distances(x, positions, base=10000.0):
    return rotate_column_by_column(x, positions.clamp(max=255), base)


def slopes(heads):
    return torch.tensor([2 ** (-8 * (h + 1) / heads) for h in range(heads)])


def penalize_by_loops(heads, T, S):
    bias = torch.zeros(heads, T, S)
    for h, slope in enumerate(slopes(heads)):
        for t in range(T):
            for s in range(S):
                bias[h, t, s] = -slope * (t + S - T - s)
    return bias


def multiply_slopes_by_keys(heads, T, S):
    """A constant of each row away, as in the released code."""
    return (slopes(heads)[:, None, None] * torch.arange(S)).repeat(1, T, 1)


def penalize_two_steps(heads, T, S):
    away = torch.arange(S - T, S)[:, None] - torch.arange(S)
    return -slopes(heads)[:, None, None] * away.clamp(max=2)


def count_by_wavelength(D, base, L, s):
    lengths = [2 * math.pi * base ** (2 * i / D) for i in range(D // 2)]
    slow = [x for x in lengths if x > L]
    return [len(lengths) - len(slow), len(slow), 0, len(slow[:-1])]


def count_with_numpy(D, base, L, s):
    rotations = L * np.power(float(base), -np.arange(0, D, 2) / D) / (2 * np.pi)
    slow = (rotations < 1).sum()
    return [(rotations >= 1).sum(), slow, 0, slow - 1 if slow else 0]


def use_one_input(head, words, positions):
    """One input in which the four explanations predict different keys."""
    key = int(head(words, positions).argmax())
    back, size = len(words) - 1 - key, len(words) + 3
    row = size - 1 - back
    by_distance, by_position, by_word = [n for n in range(size - 1) if n != row][:3]
    places = 500 + 1000 * torch.arange(size)
    places[by_distance] = places[-1] - back
    places[by_position] = key
    new = torch.arange(100, 100 + size)
    new[by_word] = words[key]
    found = int(head(new, places).argmax())
    return [by_distance, by_position, by_word, row].index(found)


def change_one_after_the_other(head, words, positions):
    key = int(head(words, positions).argmax())
    if head(words, positions + 31)[key] < 0.9:
        return 1
    replaced = words.clone()
    replaced[key] = 1000
    if head(replaced, positions)[key] < 0.5:
        return 2
    return 0 if head(words, positions * 3)[key] < 0.5 else 3


RIGHT = {
    checks.check_rotate: (rotate_column_by_column, rotate_through_halves),
    checks.check_alibi: (penalize_by_loops, multiply_slopes_by_keys),
    checks.check_new_angles: (count_by_wavelength, count_with_numpy),
    checks.check_position_use: (use_one_input, change_one_after_the_other),
}
WRONG = (
    (checks.check_rotate, "numbers", rotate_at_short_distances),
    (checks.check_alibi, "numbers", penalize_two_steps),
)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
