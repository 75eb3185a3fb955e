"""Exercises on FlashAttention: right answers of several kinds, and wrong ones."""

import math

import torch
from torch.nn import functional as F

from answers import make_tests
from attnbook.exercises import flash_attention as checks
from attnbook.exercises.kernels import tl, triton


def attend_by_index(query, key, value, block):
    T, S, D = query.shape[-2], key.shape[-2], query.shape[-1]
    output = torch.empty(*query.shape[:-1], value.shape[-1])
    lse = torch.empty(query.shape[:-1])
    for i in range(0, T, block):
        q = query[..., i : i + block, :] / math.sqrt(D)
        top = torch.full(q.shape[:-1], -math.inf)[..., None]
        total, sums = torch.zeros_like(top), 0
        for j in range(0, S, block):
            k, v = key[..., j : j + block, :], value[..., j : j + block, :]
            s = torch.einsum("...td,...sd->...ts", q, k)
            new = torch.maximum(top, s.amax(-1, keepdim=True))
            p, factor = torch.exp(s - new), torch.exp(top - new)
            total *= factor
            total += p.sum(-1, keepdim=True)
            sums, top = factor * sums + p @ v, new
        output[..., i : i + block, :] = sums / total
        lse[..., i : i + block] = (top + total.log())[..., 0]
    return output, lse


def attend_padded(query, key, value, block, hidden=-torch.inf, begin=-torch.inf):
    """From the last tile to the first; keys that pad the last are masked out."""
    S = key.shape[-2]
    key, value = (F.pad(x, (0, 0, 0, -S % block)) for x in (key, value))
    outputs, sums = [], []
    for q in (query * query.shape[-1] ** -0.5).split(block, -2):
        top = torch.full_like(q[..., :1], begin)
        total, output = torch.zeros_like(top), 0.0
        for j in reversed(range(0, S, block)):
            s = q @ key[..., j : j + block, :].mT
            s[..., max(S - j, 0) :] = hidden
            new = torch.maximum(top, s.amax(-1, keepdim=True))
            p, factor = torch.exp(s - new), torch.exp(top - new)
            total = total * factor + p.sum(-1, keepdim=True)
            output = output * factor + p @ value[..., j : j + block, :]
            top = new
        outputs.append(output / total)
        sums.append((top + total.log())[..., 0])
    return torch.cat(outputs, -2), torch.cat(sums, -1)


def attend_with_a_sentinel_of_minus_a_billion(query, key, value, block):
    return attend_padded(query, key, value, block, hidden=-1e9)


def differentiate_by_index(query, key, value, output, lse, upstream, block):
    scale = query.shape[-1] ** -0.5
    dq, dk, dv = (torch.zeros_like(x) for x in (query, key, value))
    delta = torch.einsum("...te,...te->...t", upstream, output)
    for i in range(0, query.shape[-2], block):
        t = slice(i, i + block)
        for j in range(0, key.shape[-2], block):
            s = slice(j, j + block)
            q, k, v = query[..., t, :], key[..., s, :], value[..., s, :]
            up = upstream[..., t, :]
            w = torch.exp(q @ k.mT * scale - lse[..., t, None])
            ds = w * (up @ v.mT - delta[..., t, None]) * scale
            dv[..., s, :] += w.mT @ up
            dq[..., t, :] += ds @ k
            dk[..., s, :] += ds.mT @ q
    return dq, dk, dv


def differentiate_chunks(query, key, value, output, lse, upstream, block):
    """Only the queries are divided; each chunk has an ordinary softmax."""
    scale = query.shape[-1] ** -0.5
    dq, dk, dv = [], torch.zeros_like(key), torch.zeros_like(value)
    for i in range(0, query.shape[-2], block):
        q, up = query[..., i : i + block, :], upstream[..., i : i + block, :]
        w = (q @ key.mT * scale).softmax(-1)
        dw = up @ value.mT
        ds = w * (dw - (w * dw).sum(-1, keepdim=True)) * scale
        dq.append(ds @ key)
        dk += ds.mT @ q
        dv += w.mT @ up
    return torch.cat(dq, -2), dk, dv


def count_in_a_walk(B, H, n, D, R, C):
    counts = [0, 0, 0, 0, 4 * R * (C + D)]
    for _ in range(B * H):
        for row in range(0, n, R):
            rows = min(R, n - row)
            counts[0] += 1
            counts[2] += 2 * rows * D
            for column in range(0, row + rows, C):
                counts[1] += 1
                counts[2] += 2 * 2 * min(C, n - column) * D
            counts[3] += rows * (2 * D + 4)
    return counts


def count_with_torch(B, H, n, D, R, C):
    ends = (torch.arange(0, n, R) + R).clamp(max=n)
    visited = (ends + C - 1) // C
    keys = (visited * C).clamp(max=n).sum()
    each = len(ends), visited.sum(), 2 * n * D + 4 * keys * D, 2 * n * D + 4 * n
    return torch.tensor([*(B * H * x for x in each), 4 * (R * C + R * D)])


def is_wrong(attention, given, block, part=0):
    """Tell whether output (or logsumexp) departs from the exact one."""
    q, k, v = (x.double() for x in given)
    scores = q @ k.T / q.shape[-1] ** 0.5
    exact = scores.softmax(-1) @ v, scores.logsumexp(-1)
    found = attention(*given, block)[part].double()
    return not torch.allclose(found, exact[part], rtol=1e-3, atol=1e-3)


def draw_numbers(seed, *shapes):
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(*x, generator=rng) for x in shapes]


def find_fault_by_a_table_of_inputs(attention, query, key, value):
    q, k, v = draw_numbers(5, (4, 8), (6, 8), (6, 8))
    inputs = {
        5: ((q, k, v[:, :3]), 6),
        2: ((q, k, v), 7),
        4: ((q[:1], -300 * q[:1].repeat(6, 1), v), 6),
    }
    if is_wrong(attention, (q, k, v), 6, part=1):
        return 3
    for number, (given, block) in inputs.items():
        if is_wrong(attention, given, block):
            return number
    rising = k * torch.arange(1, 7)[:, None]
    return int(is_wrong(attention, (q, rising, v), 1))


def find_fault_by_block_sizes(attention, query, key, value):
    """The block may not change the result."""
    q, k, v = draw_numbers(6, (3, 4), (12, 4), (12, 4))
    output = attention(q, k, v, 12)[0]
    far = torch.cat([q, torch.full((3, 1), -1e3)], 1)
    tests = {
        3: is_wrong(attention, (q, k, v), 12, part=1),
        5: is_wrong(attention, (q, k, v.repeat(1, 3)), 12),
        2: not torch.allclose(attention(q, k, v, 13)[0], output, atol=1e-3),
        1: not torch.allclose(attention(q, k, v, 3)[0], output, atol=1e-3),
        4: is_wrong(attention, (far, torch.cat([k, torch.ones(12, 1)], 1), v), 12),
    }
    return next((n for n, failed in tests.items() if failed), 0)


@triton.jit
def softmax_of_base_two(scores, weights, stride, length, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    first = tl.program_id(0) * stride
    x = tl.load(scores + first + columns, mask=columns < length, other=0.0)
    x = tl.where(columns < length, x, -1e30) * 1.4426950408889634
    powers = tl.where(columns < length, tl.exp2(x - x.max(0)), 0.0)
    tl.store(weights + first + columns, powers / powers.sum(0), columns < length)


@triton.jit
def take_logsumexp(x):
    return tl.max(x, 0) + tl.log(tl.sum(tl.exp(x - tl.max(x, 0)), 0))


@triton.jit
def softmax_by_logsumexp(scores, weights, stride, length, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    scores, weights = (x + tl.program_id(0) * stride + at for x in (scores, weights))
    x = tl.load(scores, at < length, float("-inf"))
    tl.store(weights, tl.exp(x - take_logsumexp(x)), at < length)


@triton.jit
def attend_in_base_two(
    query, key, value, output, scale, T: tl.constexpr, S: tl.constexpr,
    D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    rows, width = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T), tl.arange(0, D)
    own = rows[:, None] * D + width[None, :]
    q = tl.load(query + own, rows[:, None] < T, 0.0) * (scale * 1.4426950408889634)
    top, total = tl.full((BLOCK_T,), -1e30, tl.float32), 0.0
    sums = tl.zeros((BLOCK_T, D), tl.float32)
    for start in range(0, S, BLOCK_S):
        keys = start + tl.arange(0, BLOCK_S)
        at, inside = keys[:, None] * D + width[None, :], keys[:, None] < S
        k, v = tl.load(key + at, inside, 0.0), tl.load(value + at, inside, 0.0)
        scores = tl.dot(q, tl.trans(k)) + tl.where(keys < S, 0.0, float("-inf"))
        new = tl.maximum(top, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new[:, None])
        total = total * tl.exp2(top - new) + tl.sum(weights, axis=1)
        sums = tl.dot(weights, v, acc=sums * tl.exp2(top - new)[:, None])
        top = new
    tl.store(output + own, sums / total[:, None], rows[:, None] < T)


@triton.jit
def attend_key_by_key(
    query, key, value, output, scale, T: tl.constexpr, S: tl.constexpr,
    D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """One key at a time: sums of products, and no tile that is not full."""
    rows, width = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T), tl.arange(0, D)
    own = rows[:, None] * D + width[None, :]
    q = tl.load(query + own, rows[:, None] < T, 0.0)
    top, total, sums = tl.full((BLOCK_T,), -1e30, tl.float32), 0.0, 0.0
    for s in range(S):
        k, v = tl.load(key + s * D + width), tl.load(value + s * D + width)
        score = tl.sum(q * k, 1) * scale
        new = tl.maximum(top, score)
        factor, weight = tl.exp(top - new), tl.exp(score - new)
        total = total * factor + weight
        sums = sums * factor[:, None] + weight[:, None] * v
        top = new
    tl.store(output + own, sums / total[:, None], rows[:, None] < T)


RIGHT = {
    checks.check_tiled: (attend_by_index, attend_padded),
    checks.check_tiled_backward: (differentiate_by_index, differentiate_chunks),
    checks.check_tile_counts: (count_in_a_walk, count_with_torch),
    checks.check_tiled_fault: (
        find_fault_by_a_table_of_inputs,
        find_fault_by_block_sizes,
    ),
    checks.check_softmax_kernel: (softmax_of_base_two, softmax_by_logsumexp),
    checks.check_forward_kernel: (attend_in_base_two, attend_key_by_key),
}
WRONG = ((checks.check_tiled, "numbers", attend_with_a_sentinel_of_minus_a_billion),)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
