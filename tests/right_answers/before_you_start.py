"""Right answers to the exercises of chapters/00_before_you_start."""

import torch
from torch.nn import functional as F

from attnbook.exercises import before_you_start as checks
from right_answers import collect_answers, in_double


def softmax_by_rows(x):
    rows = []
    for row in x:
        powers = torch.exp(row - row.max())
        rows.append(powers / powers.sum())
    return torch.stack(rows)


def softmax_by_logarithm(x):
    return (x - x.logsumexp(-1, keepdim=True)).exp()


def softmax_by_differences(x):
    return 1 / (x[:, None, :] - x[:, :, None]).exp().sum(-1)


def softmax_turned_round(x):
    turned = x.T
    powers = torch.exp(turned - turned.amax(0))
    return (powers / powers.sum(0)).T


def product_by_loops(query, key):
    rows = [[(q * k).sum(-1) for k in key.unbind(1)] for q in query.unbind(1)]
    return torch.stack([torch.stack(row, -1) for row in rows], 1)


def product_by_sequence(query, key):
    return torch.stack([q @ k.T for q, k in zip(query, key, strict=True)])


def product_by_broadcast(query, key):
    return (query[:, :, None, :] * key[:, None, :, :]).sum(-1)


def product_by_bmm(q, k):
    return torch.bmm(q, k.transpose(1, 2))


def product_by_einsum(q, k):
    return torch.einsum("btd,bsd->bts", q, k)


def sum_by_loops(a, b):
    rows = [
        torch.stack([a[:, t] + b[:, s] for s in range(b.shape[1])], 1)
        for t in range(a.shape[1])
    ]
    return torch.stack(rows, 1)


def sum_by_expand(a, b):
    t, s = a.shape[1], b.shape[1]
    wide = a.unsqueeze(2).expand(-1, -1, s, -1)
    return wide + b.unsqueeze(1).expand(-1, t, -1, -1)


def sum_by_repeat_and_interleave(a, b):
    t, s = a.shape[1], b.shape[1]
    long = a.repeat_interleave(s, dim=1) + b.repeat(1, t, 1)
    return long.unflatten(1, (t, s))


def sum_by_einsum_with_ones(a, b):
    ones_a, ones_b = torch.ones_like(a), torch.ones_like(b)
    return torch.einsum("bta,bsa->btsa", a, ones_b) + torch.einsum(
        "bta,bsa->btsa", ones_a, b
    )


def sum_by_views(a, b):
    batch, t, width = a.shape
    return a.view(batch, t, 1, width) + b.view(batch, 1, -1, width)


def gradient_by_backward(x):
    x = x.clone().requires_grad_()
    (x.softmax(0) ** 2).sum().backward()
    return x.grad


def gradient_by_func(x):
    return torch.func.grad(lambda y: F.softmax(y, dim=0).square().sum())(x)


def gradient_by_hand(x):
    p = x.softmax(0)
    return 2 * p * (p - (p * p).sum())


def gradient_by_jacobian(x):
    p = x.softmax(0)
    return (torch.diag(p) - torch.outer(p, p)) @ (2 * p)


def gradient_in_forward_mode(x):
    def value(y):
        return (y.softmax(0) ** 2).sum()

    ones = torch.eye(len(x), dtype=x.dtype)
    return torch.stack([torch.func.jvp(value, (x,), (e,))[1] for e in ones])


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


def gru_by_einsum(x, h, W_ih, W_hh, b_ih, b_hh):
    def parts(w):
        return w.unflatten(0, (3, -1))

    a = torch.einsum("bi,gni->gbn", x, parts(W_ih)) + parts(b_ih)[:, None]
    b = torch.einsum("bm,gnm->gbn", h, parts(W_hh)) + parts(b_hh)[:, None]
    reset, update = torch.sigmoid(a[:2] + b[:2])
    return (1 - update) * torch.tanh(a[2] + reset * b[2]) + update * h


def gru_by_rows(x, h, *weights):
    return torch.cat(
        [gru_by_slices(a[None], b[None], *weights) for a, b in zip(x, h, strict=True)]
    )


def lstm_by_columns(x, h, c, W_ih, W_hh, b_ih, b_hh):
    n = h.shape[1]
    gates = W_ih @ x.T + b_ih[:, None] + W_hh @ h.T + b_hh[:, None]
    enter, keep = gates[:n].sigmoid(), gates[n : 2 * n].sigmoid()
    new, out = gates[2 * n : 3 * n].tanh(), gates[3 * n :].sigmoid()
    c = (keep * c.T + enter * new).T
    return out.T * c.tanh(), c


def lstm_by_one_matrix(x, h, c, W_ih, W_hh, b_ih, b_hh):
    gates = F.linear(torch.cat([x, h], 1), torch.cat([W_ih, W_hh], 1), b_ih + b_hh)
    i, f, g, o = gates.split(h.shape[1], 1)
    c = torch.addcmul(f.sigmoid() * c, i.sigmoid(), g.tanh())
    return torch.mul(o.sigmoid(), c.tanh()), c


def lstm_by_einsum(x, h, c, W_ih, W_hh, b_ih, b_hh):
    def parts(w):
        return w.unflatten(0, (4, -1))

    gates = torch.einsum("bi,gni->gbn", x, parts(W_ih))
    gates = gates + torch.einsum("bm,gnm->gbn", h, parts(W_hh))
    i, f, g, o = gates + parts(b_ih + b_hh)[:, None]
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def lstm_by_exponentials(x, h, c, W_ih, W_hh, b_ih, b_hh):
    i, f, g, o = (x @ W_ih.T + b_ih + h @ W_hh.T + b_hh).chunk(4, 1)
    c = c / (1 + (-f).exp()) + (2 * (2 * g).sigmoid() - 1) / (1 + (-i).exp())
    return c.tanh() / (1 + (-o).exp()), c


softmax_in_double = in_double(checks.check_softmax.solution)
product_in_double = in_double(checks.check_batched_product.solution)
gru_in_double = in_double(checks.check_gru_step.solution)
lstm_in_double = in_double(checks.check_lstm_step.solution)
ANSWERS = collect_answers(
    vars(),
    check_softmax="softmax",
    check_batched_product="product",
    check_broadcast_add="sum",
    check_gradient="gradient",
    check_gru_step="gru",
    check_lstm_step="lstm",
)
