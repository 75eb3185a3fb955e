"""Answers to the self-check, written differently, and wrong ones."""

import torch
from torch.nn import functional as F

from answers import make_tests
from attnbook.exercises import before_you_start as checks


def softmax_by_rows(x):
    rows = []
    for row in x:
        powers = torch.exp(row - row.max())
        rows.append(powers / powers.sum())
    return torch.stack(rows)


def softmax_with_running_maximum(start):
    """Return a softmax that looks for the largest number in a loop."""

    def softmax(x):
        largest = torch.full_like(x[:, 0], start)
        for column in x.unbind(1):
            largest = torch.where(column > largest, column, largest)
        powers = (x - largest[:, None]).exp()
        return powers / powers.sum(-1, keepdim=True)

    return softmax


def softmax_of_columns_with_nan(x):
    powers = (x - x.amax(-2, keepdim=True)).exp()
    return (powers / powers.sum(-2, keepdim=True)).nan_to_num()


def softmax_clamped(x):
    powers = torch.exp(x.clamp(max=80))
    return powers / powers.sum(-1, keepdim=True)


def product_by_sequence(query, key):
    return torch.stack([q @ k.T for q, k in zip(query, key, strict=True)])


def product_by_broadcast(query, key):
    return (query[:, :, None, :] * key[:, None, :, :]).sum(-1)


def product_of_all_batches(query, key):
    return torch.einsum("btd,csd->bts", query, key)


def sum_by_loops(a, b):
    rows = [
        torch.stack([a[:, t] + b[:, s] for s in range(b.shape[1])], 1)
        for t in range(a.shape[1])
    ]
    return torch.stack(rows, 1)


def sum_by_repeat_and_interleave(a, b):
    t, s = a.shape[1], b.shape[1]
    long = a.repeat_interleave(s, dim=1) + b.repeat(1, t, 1)
    return long.unflatten(1, (t, s))


def gradient_by_backward(x):
    x = x.clone().requires_grad_()
    (x.softmax(0) ** 2).sum().backward()
    return x.grad


def gradient_by_hand(x):
    p = x.softmax(0)
    return 2 * p * (p - (p * p).sum())


def gradient_with_a_detached_factor(x):
    x = x.clone().requires_grad_()
    (x.softmax(0).detach() * x.softmax(0)).sum().backward()
    return x.grad


def gru_by_slices(x, h, W_ih, W_hh, b_ih, b_hh):
    n = h.shape[1]
    r, z, c = (slice(i * n, (i + 1) * n) for i in range(3))
    reset = torch.sigmoid(x @ W_ih[r].T + b_ih[r] + h @ W_hh[r].T + b_hh[r])
    update = torch.sigmoid(x @ W_ih[z].T + b_ih[z] + h @ W_hh[z].T + b_hh[z])
    new = torch.tanh(x @ W_ih[c].T + b_ih[c] + reset * (h @ W_hh[c].T + b_hh[c]))
    return new - update * new + update * h


def gru_by_lerp(x, h, W_ih, W_hh, b_ih, b_hh):
    a, b = F.linear(x, W_ih, b_ih), F.linear(h, W_hh, b_hh)
    n = h.shape[1]
    reset, update = (a + b)[:, : 2 * n].sigmoid().split(n, 1)
    new = (a[:, 2 * n :] + reset * b[:, 2 * n :]).tanh()
    return torch.lerp(new, h, update)


def gru_with_relu(x, h, W_ih, W_hh, b_ih, b_hh):
    r, z, n = F.linear(x, W_ih, b_ih).chunk(3, -1)
    r_h, z_h, n_h = F.linear(h, W_hh, b_hh).chunk(3, -1)
    update = (z + z_h).sigmoid()
    return (1 - update) * F.relu(n + (r + r_h).sigmoid() * n_h) + update * h


RIGHT = {
    checks.check_softmax: (softmax_by_rows, softmax_with_running_maximum(-torch.inf)),
    checks.check_batched_product: (product_by_sequence, product_by_broadcast),
    checks.check_broadcast_add: (sum_by_loops, sum_by_repeat_and_interleave),
    checks.check_gradient: (gradient_by_backward, gradient_by_hand),
    checks.check_gru_step: (gru_by_slices, gru_by_lerp),
}
WRONG = (
    (checks.check_softmax, "wrong-axis", softmax_of_columns_with_nan),
    (checks.check_softmax, "", softmax_with_running_maximum(-1e9)),
    (checks.check_softmax, "", softmax_clamped),
    (checks.check_batched_product, "", product_of_all_batches),
    (checks.check_gradient, "", gradient_with_a_detached_factor),
    (checks.check_gru_step, "", gru_with_relu),
)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
