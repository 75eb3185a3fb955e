"""Exercises on several devices: right answers of several kinds, and wrong ones."""

import math
from fractions import Fraction

import torch

from answers import make_tests
from attnbook.exercises import many_devices as checks


def bytes_of_meta_tensors(P, B, H, G, D, T, b):
    kind = {2: torch.float16, 4: torch.float32}[b]

    def size(*shape, dtype=kind):
        return torch.empty(shape, dtype=dtype, device="meta").nbytes

    keys = 2 * size(B, G, T // P, D)
    copied = 2 * size(B, max(G, P), T // P, D)
    swapped = 2 * size(B, H, T // P, D) + copied
    whole = size(B, T, H * D)
    row = size(B, H, 1, D, dtype=torch.float32) + size(B, H, 1, dtype=torch.float32)
    return [
        keys * (P - 1),
        swapped - swapped // P,
        keys * P - keys,
        whole // P * 2 * (P - 1),
        row * (P - 1),
    ]


def bytes_by_shares(P, B, H, G, D, T, b):
    away, tokens = Fraction(P - 1, P), B * T
    ring = away * tokens * 2 * G * D * b
    swapped = away / P * tokens * D * b * 2 * (H + (G if G > P else P))
    reduced = 2 * away * tokens * H * D * b
    decoded = 4.0 * (P - 1) * B * (H * D + H)
    return [*map(float, (ring, swapped, ring, reduced)), decoded]


def ring_with_online_softmax(query, key, value, positions, group):
    highest = query.new_full((*query.shape[:-1], 1), -math.inf)
    total, output = torch.zeros_like(highest), 0
    packed = torch.cat([key, value], -1)
    where = positions
    for left in reversed(range(group.size)):
        key, value = packed.split([key.shape[-1], value.shape[-1]], -1)
        scores = torch.einsum("...td,...sd->...ts", query, key) / math.sqrt(
            query.shape[-1]
        )
        scores = torch.where(
            positions.unsqueeze(-1) < where.unsqueeze(-2), -math.inf, scores
        )
        new = torch.maximum(highest, scores.amax(-1, keepdim=True))
        keep, weights = (highest - new).exp(), (scores - new).exp()
        total = total * keep + weights.sum(-1, keepdim=True)
        output, highest = output * keep + weights @ value, new
        if left:
            packed, where = group.shift(packed), group.shift(where)
    return output / total


def ring_of_gathered_keys(query, key, value, positions, group):
    held = [(key, value, positions)]
    for _ in range(group.size - 1):
        held.append(tuple(map(group.shift, held[-1])))
    keys, values = (torch.cat([x[i] for x in held], -2) for i in (0, 1))
    where = torch.cat([x[2] for x in held], -1)
    bias = torch.zeros(*positions.shape, where.shape[-1])
    bias[where[..., None, :] > positions[..., None]] = -torch.inf
    return (query @ keys.mT * query.shape[-1] ** -0.5 + bias).softmax(-1) @ values


def attend(query, key, value):
    mask = torch.ones(len(query), len(query)).tril()
    exponentials = (query @ key.T / query.shape[1] ** 0.5).exp() * mask
    return exponentials @ value / exponentials.sum(1, keepdim=True)


def fault_by_counts(ring, P):
    T = 6 * P + 1
    zeros, values = torch.zeros(T, 2), torch.eye(T)
    found = ring(zeros, zeros, values)  # 1 / (t + 1) if all is right
    if bool((found[-1] == 0).all()):
        return 3
    seen = found > 0
    if seen.triu(1).any():
        return 2
    if seen.sum() < T * (T + 1) // 2:
        return 5
    if not torch.allclose(found[1], values[:2].sum(0) / 2):
        return 4
    draw = torch.Generator().manual_seed(3)
    shards = torch.randn(3, T, 4, generator=draw)
    mine, theirs = (shards.clone().requires_grad_() for _ in range(2))
    ring(*mine).square().sum().backward()
    attend(*theirs).square().sum().backward()
    return int(not torch.allclose(mine.grad, theirs.grad, atol=1e-4))


def fault_by_changes(ring, P):
    def run(T, changed=None):
        draw = torch.Generator().manual_seed(T)
        query, key, value = torch.randn(3, T, 3, generator=draw)
        if changed is not None:
            value[changed] += 1
        return query, key, value

    n = 2 * P * 3
    before = ring(*run(n))
    moved = [(ring(*run(n, s)) - before).abs().sum(1) for s in range(n)]
    if any(x[:s].any() for s, x in enumerate(moved)):
        return 2
    if any((x[s:] == 0).any() for s, x in enumerate(moved)):
        return 5
    if not torch.allclose(before, attend(*run(n)), atol=1e-4):
        return 4
    if not torch.allclose(ring(*run(n + 1)), attend(*run(n + 1)), atol=1e-4):
        return 3
    value = run(n)[2].requires_grad_()
    ring(*run(n)[:2], value)[-1].sum().backward()
    return 1 if (value.grad == 0).any() else 0


def fault_by_the_output(ring, P):
    shards = torch.randn(3, 4 * P, 3)
    return 0 if torch.allclose(ring(*shards), attend(*shards), atol=1e-4) else 2


def grid_by_tables(P, M, H, G, D, T, inside, between):
    best = [0, math.inf]
    for ring in range(P, 0, -1):
        columns, rest = divmod(P, ring)
        if rest or H % columns:
            continue
        own = T * D * 2 // P
        numbers = [H, G, G, H] if columns <= G else [H, columns, columns, H]
        row = sum(x * own - x * own // columns for x in numbers)
        links = [between if x > M else inside for x in (columns, P)]
        around = (ring - 1) * T // ring * D * 4 * numbers[1] // columns
        bills = [(4 * columns - 4, row), (ring - 1, around)]
        time = sum(
            link[0] * n + link[1] * sent
            for link, (n, sent) in zip(links, bills, strict=True)
        )
        best = min(best, [columns, time], key=lambda x: x[1])
    return best


def grid_by_min(P, M, H, G, D, T, inside, between):
    def seconds(C):
        row = inside if C <= M else between
        column = inside if P <= M else between
        keys = G if G > C else C
        t = row[0] * 4 * (C - 1) + row[1] * 4 * (H + keys) * D * T * (C - 1) / C / P
        ring = P / C - 1
        return t + column[0] * ring + column[1] * ring * 4 * keys * D * T / P

    grids = [C for C in range(1, P + 1) if P % C == 0 and H % C == 0]
    C = min(grids, key=seconds)
    return torch.tensor([C, seconds(C)], dtype=torch.float64)


def grid_of_one_row(P, M, H, G, D, T, inside, between):
    found = grid_by_min(P, P, H, G, D, T, inside, between)
    return [math.gcd(P, H), float(found[1])]


RIGHT = {
    checks.check_plan_bytes: (bytes_of_meta_tensors, bytes_by_shares),
    checks.check_causal_ring: (ring_with_online_softmax, ring_of_gathered_keys),
    checks.check_ring_fault: (fault_by_counts, fault_by_changes),
    checks.check_best_grid: (grid_by_tables, grid_by_min),
}
WRONG = (
    (checks.check_ring_fault, "numbers", fault_by_the_output),
    (checks.check_best_grid, "", grid_of_one_row),
)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
