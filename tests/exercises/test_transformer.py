"""Exercises on the Transformer: right answers of several kinds, and wrong ones."""

import torch
from torch import nn

from answers import make_tests
from attnbook.exercises import transformer as checks


def normalize_by_var(x, gain, bias, eps):
    variance = x.var(-1, unbiased=False, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance + eps) * gain + bias


def normalize_in_loops(x, gain, bias, eps):
    rows = []
    for row in x.reshape(-1, x.shape[-1]):
        apart = row - row.sum() / len(row)
        rows.append(apart / ((apart @ apart) / len(row) + eps).sqrt())
    return torch.stack(rows).reshape(x.shape) * gain + bias


def normalize_with_detached_statistics(x, gain, bias, eps):
    mean = x.mean(-1, keepdim=True).detach()
    variance = (x - mean).square().mean(-1, keepdim=True).detach()
    return (x - mean) / (variance + eps).sqrt() * gain + bias


def decode_each_sequence(x, memory, lengths, attend):
    rows = []
    for one, source, n in zip(x, memory, lengths.tolist(), strict=True):
        past = torch.ones(len(one), len(one)).tril().bool()
        y = one + attend(one, one, one, past)
        rows.append(y + attend(y, source[:n], source[:n]))
    return torch.stack(rows)


def decode_without_given_attention(x, memory, lengths, attend, fill=-torch.inf):
    def average(query, key, mask):
        scores = torch.einsum("btc,bsc->bts", query, key) / key.shape[-1] ** 0.5
        return torch.softmax(torch.where(mask, scores, fill), dim=2) @ key

    T, S = x.shape[1], memory.shape[1]
    y = x + average(x, x, ~torch.ones(T, T, dtype=torch.bool).triu(1))
    return y + average(y, memory, (torch.arange(S) < lengths[:, None])[:, None])


def decode_with_sentinel(x, memory, lengths, attend):
    fill = -1e4 if x.dtype == torch.float16 else -1e9
    return decode_without_given_attention(x, memory, lengths, attend, fill)


def count_empty_tensors(V, C, H, G, F, L, S):
    def size(*shapes):
        return sum(torch.empty(s, device="meta").numel() for s in shapes)

    D = C // H
    attention = size((C, C), (C, G * D), (C, G * D), (C, C), (D,), (D,))
    network = size(*3 * [(F, C)])
    model = size((V, C), (C,)) + L * (attention + network + size((C,), (C,)))
    return torch.tensor([attention, network, model, 2 * L * size((G, S, D))])


def count_modules(V, C, H, G, F, L, S):
    D = C // H
    with torch.device("meta"):
        attention = nn.ModuleList(
            nn.Linear(C, n, bias=False) for n in (C, G * D, G * D, C)
        )
        attention += [nn.RMSNorm(D), nn.RMSNorm(D)]
        network = nn.ModuleList(nn.Linear(C, F, bias=False) for _ in range(3))
        rest = nn.ModuleList([nn.Embedding(V, C), nn.RMSNorm(C)])

    def count(module):
        return sum(p.numel() for p in module.parameters())

    block = count(attention), count(network)
    return [*block, count(rest) + L * (sum(block) + 2 * C), 2 * L * S * G * D]


def differ(a, b):
    return bool((a - b).abs().max() > 1e-4)


def draw_like(x, seed):
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))


def follow_gradients(block, x):
    x = draw_like(x, 3).requires_grad_()
    T = x.shape[1]
    (reached,) = torch.autograd.grad(block(x)[0, T - 2].square().sum(), x)
    if reached[1:].abs().max() > 1e-6:
        return 4
    if reached[0, T - 1].abs().max() > 1e-6:
        return 3
    with torch.no_grad():
        first, second = block(x), block(1e4 * x)
    if (second.var(-1, unbiased=False) - 1).abs().max() < 1e-2:
        return 2
    if second.norm() < 100 * first.norm():
        return 1
    return 5 if (second / 1e4 - x).abs().max() > 0.01 else 0


def cut_and_continue(block, x):
    """A sequence alone and in company, a prefix alone and continued."""
    x = draw_like(x, 7)
    whole = block(x)
    if differ(block(x[:1]), whole[:1]):
        return 4
    if differ(block(x[:, :2]), whole[:, :2]):
        return 3
    if (whole.pow(2).mean(-1) - 1).abs().max() < 1e-3:
        return 2
    slope = (block(3000 * x) - block(1000 * x)) / 2000
    if slope.abs().max() < 0.1:
        return 1
    return 5 if (slope - x).abs().max() > 0.1 else 0


def count_backwards(model, ids, symbols):
    x = (symbols - 1 - torch.arange(ids.shape[1])) % symbols
    step = (model(x[None])[0] - x)[:-1] % symbols
    if len(step.unique()) > 1:
        return 4
    return {1: 0, 0: 1, 2: 2, symbols - 1: 3}.get(int(step[0]), 4)


def change_one_symbol(model, ids, symbols):
    before, changed = model(ids), ids.clone()
    changed[:, 2] = (changed[:, 2] + 1) % symbols
    after = model(changed)
    moved = (before != after)[0].nonzero().flatten().tolist()
    if not moved:
        return 4
    if moved == [1]:
        return 3
    return {0: 1, 1: 0, 2: 2}[int((after[0, 2] - changed[0, 2]) % symbols)]


def trust_accuracy(model, ids, symbols):
    return 0 if (model(ids)[:, :-1] == ids[:, 1:]).double().mean() > 0.99 else 1


RIGHT = {
    checks.check_layer_norm: (normalize_by_var, normalize_in_loops),
    checks.check_decoder_step: (decode_each_sequence, decode_without_given_attention),
    checks.check_model_cost: (count_empty_tensors, count_modules),
    checks.check_block_fault: (follow_gradients, cut_and_continue),
    checks.check_accuracy_explanation: (count_backwards, change_one_symbol),
}
WRONG = (
    (checks.check_layer_norm, "gradient", normalize_with_detached_statistics),
    (checks.check_decoder_step, "numbers", decode_with_sentinel),
    (checks.check_accuracy_explanation, "numbers", trust_accuracy),
)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
