"""Exercises on positions: right answers of several kinds, and wrong ones."""

import math

import torch

from answers import make_tests
from attnbook.exercises import positions as checks


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


def rotate_at_short_distances(x, positions, base=10000.0):
    return rotate_column_by_column(x, positions.clamp(max=255), base)


def slopes(heads):
    return torch.tensor([2 ** (-8 * (h + 1) / heads) for h in range(heads)])


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


def score(scores, D, t, s, query, key):
    places = torch.tensor([t]), torch.tensor([s])
    return scores(query.view(1, D), key.view(1, D), *places).item()


def compare_tables(scores, D):
    x, y = torch.randn(2, D, generator=torch.Generator().manual_seed(5))
    one, other = torch.eye(D)[:2]
    grid = [[score(scores, D, t, s, x, y) for s in (0, 3, 8)] for t in (0, 3, 8)]
    table = torch.tensor(grid)
    rows = bool((table - table[:1]).abs().max() < 1e-3)
    columns = bool((table - table[:, :1]).abs().max() < 1e-3)
    if rows or columns:
        return 5 if rows and columns else 1
    if (table - table.T).abs().max() < 1e-3:
        return 2
    late = [score(scores, D, t, 0, x, y) for t in (2000, 2001)]
    if abs(late[0] - late[1]) < 1e-3:
        return 4
    return 3 * (abs(score(scores, D, 2, 0, one, other)) < 1e-3)


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
    checks.check_rotate: (rotate_column_by_column,),
    checks.check_alibi: (multiply_slopes_by_keys,),
    checks.check_new_angles: (count_by_wavelength,),
    checks.check_rotary_fault: (compare_tables,),
    checks.check_position_use: (change_one_after_the_other,),
}
WRONG = (
    (checks.check_rotate, "numbers", rotate_at_short_distances),
    (checks.check_alibi, "numbers", penalize_two_steps),
)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
