"""Exercises on efficient attention: right answers of several kinds, and wrong ones."""

import numpy as np
import torch
from torch import einsum
from torch.nn.functional import elu

from answers import make_tests
from attnbook.exercises import efficient_attention as checks
from attnbook.exercises.kernels import tl, triton


def step_by_einsum(state, normalizer, query, key, value):
    query, key = (torch.where(x > 0, x + 1, x.clamp(max=0).exp()) for x in (query, key))
    state = state + einsum("bhd,bhe->bhde", key, value)
    normalizer = normalizer + key
    output = einsum("bhd,bhde->bhe", query, state)
    total = einsum("bhd,bhd->bh", query, normalizer)
    return output / total[..., None], state, normalizer


def step_adding_the_own_key(state, normalizer, query, key, value):
    query, key = elu(query) + 1, elu(key) + 1
    own = (query * key).sum(-1, keepdim=True)
    before = (query[..., None] * state).sum(-2)
    total = (query * normalizer).sum(-1, keepdim=True) + own
    state = state + key[..., None] @ value[..., None, :]
    return (before + own * value) / total, state, normalizer + key


def update_in_place(state, normalizer, query, key, value):
    found = step_by_einsum(state, normalizer, query, key, value)
    state.data.copy_(found[1])
    return found


def delta_by_einsum(state, query, key, value, beta):
    old = einsum("bhd,bhde->bhe", key, state)
    state = state + einsum("bh,bhd,bhe->bhde", beta, key, value - old)
    return einsum("bhd,bhde->bhe", query, state), state


def delta_by_a_matrix(state, query, key, value, beta):
    write = beta[..., None, None] * key[..., None]
    reflect = torch.eye(key.shape[-1]) - write @ key[..., None, :]
    state = reflect @ state + write @ value[..., None, :]
    return (query[..., None, :] @ state).squeeze(-2), state


def delta_with_sigmoid(state, query, key, value, beta):
    return delta_by_einsum(state, query, key, value, beta.sigmoid())


def counts_by_masks(length, window, step, sinks, layers):
    t = np.arange(length)
    back = np.subtract.outer(t, t)
    mask = (back % step == 0) & (back < window * step) | (t < sinks)
    mask &= back >= 0
    row, sizes = mask[-1], []
    for _ in range(length + layers):
        sizes.append(int(row.sum()))
        row = mask[row].any(0)
    depth = sizes.index(length) + 1 if sizes[-1] == length else 0
    return np.array([sizes[0], mask.sum(), sizes[layers - 1], depth])


def counts_by_search(length, window, step, sinks, layers):
    def keys(t):
        near = [t - i * step for i in range(window) if t >= i * step]
        return {*near, *range(min(sinks, t + 1))}

    far, queue = {length - 1: 0}, [length - 1]
    for t in queue:
        for s in keys(t) - far.keys():
            far[s] = far[t] + 1
            queue.append(s)
    return [
        len(keys(length - 1)),
        sum(len(keys(t)) for t in range(length)),
        sum(d <= layers for d in far.values()),
        max(far.values()) if len(far) == length else 0,
    ]


def fault_by_table(attention, query, key, value):
    n = 30
    same = torch.zeros(n, 4, dtype=torch.float64)
    values = torch.eye(n, dtype=torch.float64, requires_grad=True)
    weights, again = attention(same, same, values), attention(same, same, values)
    right = torch.ones(n, n, dtype=torch.float64).tril()
    right = right / right.sum(1, keepdim=True)
    if (weights - again).abs().max() > 1e-4:
        return 5
    if (weights - right).abs().max() < 1e-4:
        weights[n - 1].sum().backward()
        return 0 if values.grad.abs().sum(1).bool().all() else 6
    if weights.diagonal().abs().max() < 1e-4:
        return 2
    if (weights.sum(1) - 1).abs().max() < 1e-4:
        return 4
    return 3 if abs(weights[0, 0] - 1 / 4) < 1e-4 else 1


def fault_by_constant_values(attention, query, key, value):
    n = 17
    zero, ones = torch.zeros(n, 5), torch.ones(n, 1)
    first = attention(zero, zero, ones)[0, 0].item()
    if attention(zero, zero, 0 * ones).abs().max() > 1e-4:
        return 5
    for number, weight in ((2, 0.0), (1, 1 / n), (3, 1 / 5)):
        if abs(first - weight) < 1e-4:
            return torch.tensor(number)
    one = torch.zeros(n, 1)
    one[0] = 1.0
    one.requires_grad_()
    last = attention(zero, zero, one)[-1].sum()
    if abs(last.item() - 1 / n) > 1e-4:
        return 4
    return 0 if torch.autograd.grad(last, one)[0][0].item() else 6


def kind_by_a_second_value_of_zero(memory, keys, values):
    key = torch.tensor([0.0, 1.0, 0.0])
    found = memory(key, torch.stack([key, key]), torch.tensor([[4.0], [0.0]])).item()
    if abs(found - 2) < 0.1:  # the average
        long = torch.zeros(9, 1)
        long[:2] = 90.0
        return int(memory(key, key.expand(9, 3), long).item() < 1)
    return 2 if abs(found - 4) < 0.1 else 3 if abs(found) < 0.1 else 4


def kind_by_a_key_not_written(memory, keys, values):
    key, other = torch.eye(2)
    pair, value = torch.stack([key, key]), torch.tensor([[1.0], [5.0]])
    if abs(memory(other, pair, value).item()) > 1e-3:
        filler = torch.cat([key[None], other.expand(8, 2)])
        return 0 if memory(key, filler, torch.eye(9, 1)).item() > 1e-3 else 1
    return {6: 2, 5: 3}.get(round(memory(key, pair, value).item(), 2), 4)


def kind_by_age(memory, keys, values):
    key = torch.tensor([1.0, 0.0]).expand(12, 2)
    found = float(memory(key[0], key, torch.eye(12, 1)))
    return 2 if found > 0.99 else 0 if found > 0.05 else 1


@triton.jit
def attend_row_by_row(
    query, key, value, output, T: tl.constexpr, D: tl.constexpr, CHUNK: tl.constexpr
):
    """The recurrent form: one position at a time, and sums of products."""
    width = tl.arange(0, D)
    state = tl.zeros((D, D), tl.float32)
    keys = tl.zeros((D,), tl.float32)
    for t in range(T):
        q, k = tl.load(query + t * D + width), tl.load(key + t * D + width)
        v = tl.load(value + t * D + width)
        state, keys = state + k[:, None] * v[None, :], keys + k
        summed = tl.sum(q[:, None] * state, 0)
        tl.store(output + t * D + width, summed / tl.sum(q * keys, 0))


@triton.jit
def attend_with_a_mask_of_numbers(
    query, key, value, output, T: tl.constexpr, D: tl.constexpr, CHUNK: tl.constexpr
):
    """The state is transposed, and both parts are divided by one sum."""
    width, near = tl.arange(0, D), tl.arange(0, CHUNK)
    causal = (near[None, :] <= near[:, None]).to(tl.float32)
    state = tl.zeros((D, D), tl.float32)
    keys = tl.zeros((1, D), tl.float32)
    for chunk in range(tl.cdiv(T, CHUNK)):
        rows = chunk * CHUNK + near
        at, inside = rows[:, None] * D + width[None, :], rows[:, None] < T
        q, k = tl.load(query + at, inside, 0.0), tl.load(key + at, inside, 0.0)
        v = tl.load(value + at, inside, 0.0)
        total = tl.sum(q * (keys + tl.dot(causal, k)), axis=1, keep_dims=True)
        summed = tl.dot(q, state.T) + tl.dot(tl.dot(q, k.T) * causal, v)
        tl.store(output + at, summed / total, inside)
        state = state + tl.dot(v.T, k)
        keys = keys + tl.sum(k, axis=0, keep_dims=True)


RIGHT = {
    checks.check_recurrent_step: (step_by_einsum, step_adding_the_own_key),
    checks.check_delta_step: (delta_by_einsum, delta_by_a_matrix),
    checks.check_pattern_counts: (counts_by_masks, counts_by_search),
    checks.check_linear_fault: (fault_by_table, fault_by_constant_values),
    checks.check_memory_kind: (
        kind_by_a_second_value_of_zero,
        kind_by_a_key_not_written,
    ),
    checks.check_chunk_kernel: (attend_row_by_row, attend_with_a_mask_of_numbers),
}
WRONG = (
    (checks.check_recurrent_step, "", update_in_place),
    (checks.check_delta_step, "", delta_with_sigmoid),
    (checks.check_memory_kind, "", kind_by_age),
)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
