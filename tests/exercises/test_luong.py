"""The exercises on Luong's attention: right answers in other words, wrong ones."""

import numpy as np
import torch
from torch.nn import functional as F

from answers import make_tests
from attnbook.exercises import luong


def general_by_loops(query, key, W):
    rows = []
    for t in range(query.shape[1]):
        row = [((query[:, t] @ W) * key[:, s]).sum(-1) for s in range(key.shape[1])]
        rows.append(torch.stack(row, dim=-1))
    return torch.stack(rows, dim=1)


def window_by_loops(center, S, reach):
    return torch.tensor(
        [
            [[abs(s - c) <= reach for s in range(S)] for c in row]
            for row in center.tolist()
        ]
    )


def window_by_edges(center, S, reach):
    s = torch.arange(S, dtype=center.dtype)
    low, high = (center - reach).unsqueeze(-1), (center + reach).unsqueeze(-1)
    return torch.logical_and(s >= low, s <= high)


def depth_by_table(kind, T, L):
    return {"before": 1 + T + T * L, "after": 1 + T + L, "feeding": 2 * T + T * L}[kind]


def depth_by_recursion(kind, T, L):
    more = {"before": L + 1, "after": 1, "feeding": L + 2}[kind]
    return L + 2 if T == 1 else depth_by_recursion(kind, T - 1, L) + more


def factors_by_least_squares(error):
    """Least squares on score, order and their product."""
    rows, errors = [], []
    for dot, score in enumerate(("additive", "dot")):
        for after, order in enumerate(("before", "after")):
            for seed in range(60):
                rows.append([1, dot, after, dot * after])
                errors.append(error(score, order, seed))
    fitted = np.linalg.lstsq(np.array(rows), np.array(errors), rcond=None)[0]
    _, dot, after, both = np.abs(fitted) > 2.5
    return 4 if both else int(dot) + 2 * int(after)


def factors_by_extremes(error):
    """The middle of the extremes, with chance between two bounds."""

    def middle(score, order):
        found = sorted(error(score, order, seed) for seed in range(200))
        return (found[0] + found[-1]) / 2

    corners = [middle(s, o) for s in ("additive", "dot") for o in ("before", "after")]
    base, after, dot, both = corners
    if abs(both - dot - after + base) > 2.5:
        return 4
    return (abs(dot - base) > 2.5) + 2 * (abs(after - base) > 2.5)


def window_of_nearest(center, S, reach):
    """Take the nearest positions, however far away they are."""
    away = (torch.arange(S) - center[..., None]).abs()
    best = away.topk(min(2 * reach + 1, S), dim=-1, largest=False).indices
    return torch.zeros_like(away, dtype=torch.bool).scatter(-1, best, True)


def factors_of_best_seed(error):
    """Compare the best seed of each decoder with the worst of another."""
    best = min(error("dot", "after", seed) for seed in range(40))
    worst = max(error("additive", "before", seed) for seed in range(40))
    return 3 * (abs(best - worst) > 2.5)


RIGHT = {
    luong.check_general_scores: (
        general_by_loops,
        lambda q, k, W: torch.einsum("btd,de,bse->bts", q, W, k),
    ),
    luong.check_local_window: (window_by_loops, window_by_edges),
    luong.check_decoder_depth: (depth_by_table, depth_by_recursion),
    luong.check_two_factors: (factors_by_least_squares, factors_by_extremes),
}
WRONG = (
    (luong.check_general_scores, "", lambda q, k, W: (q @ W @ k.mT).clamp(-1e4, 1e4)),
    (luong.check_general_scores, "", lambda q, k, W: F.normalize(q @ W, dim=-1) @ k.mT),
    (luong.check_local_window, "", window_of_nearest),
    (luong.check_decoder_depth, "", lambda kind, T, L: L * depth_by_table(kind, T, 1)),
    (luong.check_two_factors, "", factors_of_best_seed),
)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
