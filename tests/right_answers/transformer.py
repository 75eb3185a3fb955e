"""Right answers to the exercises of chapters/09_transformer."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import transformer as checks
from right_answers import in_double

# Layer norm


def norm_by_var(x, gain, bias, eps):
    variance = x.var(-1, unbiased=False, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(
        variance + eps
    ) * gain + bias


def norm_by_loops(x, gain, bias, eps):
    rows = []
    for row in x.reshape(-1, x.shape[-1]):
        mean = row.sum() / len(row)
        apart = row - mean
        rows.append(apart / ((apart @ apart) / len(row) + eps).sqrt())
    return torch.stack(rows).reshape(x.shape) * gain + bias


def norm_by_matrix(x, gain, bias, eps):
    C = x.shape[-1]
    centre = torch.eye(C, dtype=x.dtype) - 1 / C
    y = x @ centre
    return torch.addcmul(
        bias, y, gain * (y.pow(2).mean(-1, keepdim=True) + eps) ** -0.5
    )


def norm_by_std(x, gain, bias, eps):
    C = x.shape[-1]
    variance = x.std(-1, keepdim=True, correction=0) ** 2 if C > 1 else 0 * x
    return (
        gain * (x - x.mean(-1, keepdim=True)) * (variance + eps).rsqrt() + bias
    )


def norm_by_length(x, gain, bias, eps):
    C = x.shape[-1]
    y = x - torch.einsum("...c->...", x)[..., None] / C
    longer = torch.cat([y, torch.full_like(y[..., :1], math.sqrt(C * eps))], -1)
    return y / longer.norm(dim=-1, keepdim=True) * math.sqrt(C) * gain + bias


# The loss of the next symbol


def loss_by_loops(logits, ids, pad):
    losses = []
    for row, text in zip(logits, ids, strict=True):
        for t in range(len(text) - 1):
            if text[t + 1] != pad:
                losses.append(row[t].logsumexp(0) - row[t, text[t + 1]])
    return torch.stack(losses).mean()


def loss_by_gather(logits, ids, pad):
    gains = (
        logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    )
    keep = (ids[:, 1:] != pad).to(gains.dtype)
    return -(gains * keep).sum() / keep.sum()


def loss_by_two_log_softmaxes(logits, ids, pad):
    """Cross-entropy takes a log_softmax of it again, which changes nothing.

    A log_softmax's exponentials add up to 1 already, whose logarithm is 0. (In
    `check_weight_tying`, where logits are asked for, the first one is wrong.)
    """
    gains = logits[:, :-1].log_softmax(-1)
    return F.cross_entropy(gains.mT, ids[:, 1:], ignore_index=pad)


def loss_by_moved_labels(logits, ids, pad):
    labels = torch.cat([ids[:, 1:], torch.full_like(ids[:, :1], pad)], dim=1)
    return F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=pad)


def loss_by_nll(logits, ids, pad):
    return F.nll_loss(
        logits[:, :-1].log_softmax(-1).mT, ids[:, 1:], ignore_index=pad
    )


def loss_by_selection(logits, ids, pad):
    wanted = ids[:, 1:]
    return F.cross_entropy(logits[:, :-1][wanted != pad], wanted[wanted != pad])


def loss_by_one_hot(logits, ids, pad):
    wanted = F.one_hot(ids[:, 1:], logits.shape[-1]).to(logits.dtype)
    keep = ids[:, 1:] != pad
    losses = -(wanted * F.log_softmax(logits[:, :-1], dim=-1)).sum(-1)
    return losses.masked_select(keep).mean()


# The block


def block_by_parts(x, attention, network, first, second):
    after = torch.add(attention(first(x)), x)
    return torch.add(network(second(after)), after)


def block_in_a_loop(x, attention, network, first, second):
    for norm, sublayer in ((first, attention), (second, network)):
        x = x + sublayer(norm(x))
    return x


class Block(nn.Module):
    def __init__(self, norm, sublayer):
        super().__init__()
        self.norm, self.sublayer = norm, sublayer

    def forward(self, x):
        return self.sublayer(self.norm(x)) + x


def block_of_modules(x, attention, network, first, second):
    return nn.Sequential(Block(first, attention), Block(second, network))(x)


def block_from_the_end(x, attention, network, first, second):
    mixed = attention(first(x))
    return x + mixed + network(second(x + mixed))


def block_of_functions(x, attention, network, first, second):
    def residual(norm, sublayer):
        return lambda y: y + sublayer(norm(y))

    return residual(second, network)(residual(first, attention)(x))


def block_stacked(x, attention, network, first, second):
    parts = [x]
    parts.append(attention(first(x)))
    parts.append(network(second(sum(parts))))
    return torch.stack(parts).sum(0)


# The decoder


def step_by_texts(x, memory, lengths, attend):
    rows = []
    for one, seen, n in zip(x, memory, lengths.tolist(), strict=True):
        past = torch.ones(len(one), len(one)).tril().bool()
        y = one + attend(one, one, one, past)
        rows.append(y + attend(y, seen[:n], seen[:n]))
    return torch.stack(rows)


def step_by_places(x, memory, lengths, attend):
    T = x.shape[1]
    own = [
        attend(x[:, t : t + 1], x[:, : t + 1], x[:, : t + 1]) for t in range(T)
    ]
    y = x + torch.cat(own, dim=1)
    real = (torch.arange(memory.shape[1])[None] < lengths[:, None]).unsqueeze(1)
    return y + attend(y, memory, memory, real.expand(-1, T, -1))


def step_by_comparing(x, memory, lengths, attend):
    t, s = torch.arange(x.shape[1]), torch.arange(memory.shape[1])
    y = x + attend(x, x, x, t[:, None] >= t)
    return y + attend(y, memory, memory, ~(s >= lengths.view(-1, 1, 1)))


def step_with_whole_masks(x, memory, lengths, attend):
    B, T, S = len(x), x.shape[1], memory.shape[1]
    past = torch.zeros(B, T, T, dtype=torch.bool)
    real = torch.zeros(B, T, S, dtype=torch.bool)
    for b in range(B):
        real[b, :, : lengths[b]] = True
        for t in range(T):
            past[b, t, : t + 1] = True
    y = attend(x, x, x, past) + x
    return attend(y, memory, memory, real) + y


def step_by_triu(x, memory, lengths, attend):
    T = x.shape[1]
    future = torch.triu(torch.ones(T, T), diagonal=1) == 1
    y = x + attend(x, x, x, torch.logical_not(future))
    counted = torch.ones_like(memory[..., 0]).cumsum(1) <= lengths[:, None]
    return y + attend(y, memory, memory, counted[:, None])


# One table


def tied_by_embedding(table, ids, states):
    return F.embedding(ids, table) * math.sqrt(table.shape[1]), F.linear(
        states, table
    )


def tied_by_one_hot(table, ids, states):
    rows = F.one_hot(ids, len(table)).to(table.dtype)
    return rows @ table * table.shape[1] ** 0.5, torch.einsum(
        "btc,vc->btv", states, table
    )


def tied_by_index(table, ids, states):
    C = torch.tensor(table.shape[1], dtype=table.dtype)
    vectors = table.index_select(0, ids.flatten()).view(*ids.shape, -1)
    return vectors * C.sqrt(), (table @ states.mT).mT


def tied_by_loops(table, ids, states):
    vectors = torch.stack([torch.stack([table[i] for i in row]) for row in ids])
    logits = torch.stack([states @ row for row in table], dim=-1)
    return vectors * table.shape[1] ** 0.5, logits


def tied_by_sums(table, ids, states):
    logits = (states[..., None, :] * table).sum(-1)
    return table.shape[1] ** 0.5 * table[ids], logits


ANSWERS = {
    "check_layer_norm": (
        ("var", norm_by_var),
        ("loops", norm_by_loops),
        ("double inside", in_double(checks.check_layer_norm.solution)),
        ("a centring matrix", norm_by_matrix),
        ("the length of a longer vector", norm_by_length),
    ),
    "check_label_shift": (
        ("loops", loss_by_loops),
        ("gather", loss_by_gather),
        ("labels moved, the last one padding", loss_by_moved_labels),
        ("nll_loss", loss_by_nll),
        ("selected first", loss_by_selection),
        ("one-hot", loss_by_one_hot),
        ("log_softmax twice, which is once", loss_by_two_log_softmaxes),
    ),
    "check_block": (
        ("torch.add", block_by_parts),
        ("a loop", block_in_a_loop),
        ("modules", block_of_modules),
        ("one sum of three", block_from_the_end),
        ("functions of functions", block_of_functions),
        ("parts stacked", block_stacked),
    ),
    "check_decoder_step": (
        ("a text at a time, cut", step_by_texts),
        ("a place at a time", step_by_places),
        ("indices compared", step_by_comparing),
        ("masks filled by loops", step_with_whole_masks),
        ("triu and cumsum", step_by_triu),
    ),
    "check_weight_tying": (
        ("F.embedding and F.linear", tied_by_embedding),
        ("one-hot and einsum", tied_by_one_hot),
        ("index_select", tied_by_index),
        ("loops", tied_by_loops),
        ("sums", tied_by_sums),
    ),
}
