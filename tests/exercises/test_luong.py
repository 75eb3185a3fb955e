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


def layer_by_gradients(layer, states, memory, lengths):
    """Autograd tells what the weights of a query depend on."""
    rng = torch.Generator().manual_seed(3)
    batch, _, width = states.shape
    states = torch.randn(batch, 4, width, generator=rng).requires_grad_()
    memory = torch.randn(memory.shape, generator=rng).requires_grad_()
    if layer(states, memory, lengths - 2)[1][..., -2:].abs().sum() > 0:
        return 2
    weights = layer(states, memory, lengths)[1]
    upstream = torch.randn(weights[:, 0].shape, generator=rng)
    given = {"retain_graph": True, "allow_unused": True}
    by_state, by_memory = torch.autograd.grad(
        weights[:, 0], (states, memory), upstream, **given
    )
    if by_state is not None and by_state[:, 1:].abs().max() > 1e-6:
        return 1
    if by_memory is None or not by_memory.any():
        return 3
    if not all(half.any() for half in by_memory.chunk(2, -1)):
        return 5
    order = torch.randperm(memory.shape[1], generator=rng)
    moved = layer(states, memory[:, order], lengths)[1]
    return 0 if torch.allclose(moved, weights[..., order], atol=1e-5) else 4


def layer_by_table(layer, states, memory, lengths):
    """Every test is made, then the first that fails is looked up."""
    rng = torch.Generator().manual_seed(1)
    batch, size, width = memory.shape
    q = torch.randn(batch, 2, width, generator=rng)
    m, other = torch.randn(2, batch, size, width, generator=rng)

    def look(states, memory, lengths=lengths):
        return layer(states, memory, lengths)[1]

    def same(a, b):
        return torch.allclose(a, b, atol=1e-5)

    w, half = look(q, m), width // 2
    tests = {
        1: not same(look(q[:, :1], m), w[:, :1]),
        2: bool((look(q, m, lengths - 1)[..., -1] != 0).any()),
        3: same(look(q, other), w),
        4: not same(look(q, m.roll(1, 1)), w.roll(1, -1)),
        5: same(look(q, torch.cat([m[..., :half], other[..., half:]], -1)), w)
        or same(look(q, torch.cat([other[..., :half], m[..., half:]], -1)), w),
    }
    return next((number for number, failed in tests.items() if failed), 0)


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


def layer_with_zero_memory(layer, states, memory, lengths):
    """Set the encoder states to zero, so that nothing else disturbs."""
    return layer_by_table(
        lambda s, m, n: layer(s, torch.zeros_like(m), n), states, memory, lengths
    )


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
    luong.check_attention_fault: (layer_by_gradients, layer_by_table),
    luong.check_two_factors: (factors_by_least_squares, factors_by_extremes),
}
WRONG = (
    (luong.check_general_scores, "", lambda q, k, W: (q @ W @ k.mT).clamp(-1e4, 1e4)),
    (luong.check_general_scores, "", lambda q, k, W: F.normalize(q @ W, dim=-1) @ k.mT),
    (luong.check_local_window, "", window_of_nearest),
    (luong.check_decoder_depth, "", lambda kind, T, L: L * depth_by_table(kind, T, 1)),
    (luong.check_attention_fault, "", layer_with_zero_memory),
    (luong.check_two_factors, "", factors_of_best_seed),
)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
