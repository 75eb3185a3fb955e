"""Exercises on the Transformer: right answers of several kinds, and wrong ones."""

import torch
from torch import nn

from answers import make_tests
from attnbook.exercises import transformer as checks


def normalize_by_var(x, gain, bias, eps):
    variance = x.var(-1, unbiased=False, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance + eps) * gain + bias


def normalize_with_detached_statistics(x, gain, bias, eps):
    mean = x.mean(-1, keepdim=True).detach()
    variance = (x - mean).square().mean(-1, keepdim=True).detach()
    return (x - mean) / (variance + eps).sqrt() * gain + bias


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


def trust_accuracy(model, ids, symbols):
    return 0 if (model(ids)[:, :-1] == ids[:, 1:]).double().mean() > 0.99 else 1


RIGHT = {
    checks.check_layer_norm: (normalize_by_var,),
    checks.check_decoder_step: (decode_without_given_attention,),
    checks.check_model_cost: (count_modules,),
    checks.check_block_fault: (cut_and_continue,),
    checks.check_accuracy_explanation: (count_backwards,),
}
WRONG = (
    (checks.check_layer_norm, "gradient", normalize_with_detached_statistics),
    (checks.check_decoder_step, "numbers", decode_with_sentinel),
    (checks.check_accuracy_explanation, "numbers", trust_accuracy),
)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
