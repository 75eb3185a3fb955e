"""Right answers to the exercises of chapters/09_transformer."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import transformer as checks
from right_answers import collect_answers, in_double

# Layer norm


def norm_by_var(x, gain, bias, eps):
    variance = x.var(-1, unbiased=False, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance + eps) * gain + bias


def norm_by_loops(x, gain, bias, eps):
    rows = []
    for row in x.reshape(-1, x.shape[-1]):
        mean = row.sum() / len(row)
        apart = row - mean
        rows.append(apart / ((apart @ apart) / len(row) + eps).sqrt())
    return torch.stack(rows).reshape(x.shape) * gain + bias


def norm_by_a_centring_matrix(x, gain, bias, eps):
    C = x.shape[-1]
    centre = torch.eye(C, dtype=x.dtype) - 1 / C
    y = x @ centre
    return torch.addcmul(
        bias, y, gain * (y.pow(2).mean(-1, keepdim=True) + eps) ** -0.5
    )


def norm_by_std(x, gain, bias, eps):
    C = x.shape[-1]
    variance = x.std(-1, keepdim=True, correction=0) ** 2 if C > 1 else 0 * x
    return gain * (x - x.mean(-1, keepdim=True)) * (variance + eps).rsqrt() + bias


def norm_by_the_length_of_a_longer_vector(x, gain, bias, eps):
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
    gains = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
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
    return F.nll_loss(logits[:, :-1].log_softmax(-1).mT, ids[:, 1:], ignore_index=pad)


def loss_with_selection_first(logits, ids, pad):
    wanted = ids[:, 1:]
    return F.cross_entropy(logits[:, :-1][wanted != pad], wanted[wanted != pad])


def loss_by_one_hot(logits, ids, pad):
    wanted = F.one_hot(ids[:, 1:], logits.shape[-1]).to(logits.dtype)
    keep = ids[:, 1:] != pad
    losses = -(wanted * F.log_softmax(logits[:, :-1], dim=-1)).sum(-1)
    return losses.masked_select(keep).mean()


# The block


def block_by_torch_add(x, attention, network, first, second):
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


def block_as_one_sum_of_three(x, attention, network, first, second):
    mixed = attention(first(x))
    return x + mixed + network(second(x + mixed))


def block_of_functions(x, attention, network, first, second):
    def residual(norm, sublayer):
        return lambda y: y + sublayer(norm(y))

    return residual(second, network)(residual(first, attention)(x))


def block_with_stacked_parts(x, attention, network, first, second):
    parts = [x]
    parts.append(attention(first(x)))
    parts.append(network(second(sum(parts))))
    return torch.stack(parts).sum(0)


# The decoder


def step_a_text_at_a_time(x, memory, lengths, attend):
    rows = []
    for one, seen, n in zip(x, memory, lengths.tolist(), strict=True):
        past = torch.ones(len(one), len(one)).tril().bool()
        y = one + attend(one, one, one, past)
        rows.append(y + attend(y, seen[:n], seen[:n]))
    return torch.stack(rows)


def step_a_place_at_a_time(x, memory, lengths, attend):
    T = x.shape[1]
    own = [attend(x[:, t : t + 1], x[:, : t + 1], x[:, : t + 1]) for t in range(T)]
    y = x + torch.cat(own, dim=1)
    real = (torch.arange(memory.shape[1])[None] < lengths[:, None]).unsqueeze(1)
    return y + attend(y, memory, memory, real.expand(-1, T, -1))


def step_by_comparing_indices(x, memory, lengths, attend):
    t, s = torch.arange(x.shape[1]), torch.arange(memory.shape[1])
    y = x + attend(x, x, x, t[:, None] >= t)
    return y + attend(y, memory, memory, ~(s >= lengths.view(-1, 1, 1)))


def step_with_masks_filled_by_loops(x, memory, lengths, attend):
    B, T, S = len(x), x.shape[1], memory.shape[1]
    past = torch.zeros(B, T, T, dtype=torch.bool)
    real = torch.zeros(B, T, S, dtype=torch.bool)
    for b in range(B):
        real[b, :, : lengths[b]] = True
        for t in range(T):
            past[b, t, : t + 1] = True
    y = attend(x, x, x, past) + x
    return attend(y, memory, memory, real) + y


def step_by_triu_and_cumsum(x, memory, lengths, attend):
    T = x.shape[1]
    future = torch.triu(torch.ones(T, T), diagonal=1) == 1
    y = x + attend(x, x, x, torch.logical_not(future))
    counted = torch.ones_like(memory[..., 0]).cumsum(1) <= lengths[:, None]
    return y + attend(y, memory, memory, counted[:, None])


# One table


def tied_by_embedding(table, ids, states):
    return F.embedding(ids, table) * math.sqrt(table.shape[1]), F.linear(states, table)


def tied_by_one_hot_and_einsum(table, ids, states):
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


def cost_by_tensors_without_memory(V, C, H, G, F, L, S):
    """Tensors without memory are counted."""
    D = C // H

    def size(*shapes):
        return sum(torch.empty(s, device="meta").numel() for s in shapes)

    attention = size((C, C), (C, G * D), (C, G * D), (C, C), (D,), (D,))
    network = size(*3 * [(F, C)])
    model = size((V, C), (C,)) + L * (attention + network + size((C,), (C,)))
    return [attention, network, model, 2 * L * size((G, S, D))]


def cost_by_rows(V, C, H, G, F, L, S):
    """One row of each matrix after the other."""
    D = C // H
    rows = H * D + 2 * G * D + H * D  # of queries, keys and values, output
    block = (rows * C + 2 * D, (F + F + F) * C)
    return [*block, (V + 1) * C + L * (sum(block) + C + C), S * L * G * D * 2]


def cost_by_sum(V, C, H, G, F, L, S):
    """Blocks are added one by one."""
    D = C // H
    attention = sum([C * C, C * G * D, C * G * D, C * C, D, D])
    network = sum([C * F] * 3)
    model, cache = V * C, 0
    for _ in range(L):
        model += attention + network + C + C
        cache += S * G * (D + D)
    return [attention, network, model + C, cache]


def cost_in_rounded_fractions(V, C, H, G, F, L, S):
    """Powers and fractions, made integers at the end."""
    D = C / H
    attention = 2 * C**2 * (1 + G / H) + 2 * D
    network = 3 * C * F
    model = V * C + L * (attention + network + 2 * C) + C
    return [round(z) for z in (attention, network, model, 2 * L * S * G * D)]


def cost_by_modules_without_memory(V, C, H, G, F, L, S):
    """Modules without memory are counted."""
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
    model = count(rest) + L * (sum(block) + 2 * C)
    return [*block, model, 2 * L * S * G * D]


def differ(a, b):
    """Tell whether two tensors differ by more than rounding."""
    return bool((a - b).abs().max() > 1e-4)


def drawn_like(x, seed):
    """Return normal numbers of the same shape."""
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))


def fault_by_gradients(block, x):
    """Autograd tells which inputs an output depends on."""
    x = drawn_like(x, 3).requires_grad_()
    _, T, _ = x.shape
    (reached,) = torch.autograd.grad(block(x)[0, T - 2].square().sum(), x)
    if reached[1:].abs().max() > 1e-6:
        return 4
    if reached[0, T - 1].abs().max() > 1e-6:
        return 3
    with torch.no_grad():
        first, second = block(x), block(1e4 * x)
        if (second.mean(-1).abs().max() < 1e-3) and (
            second.var(-1, unbiased=False) - 1
        ).abs().max() < 1e-2:
            return 2
        if second.norm() < 100 * first.norm():
            return 1
        return 5 if (second / 1e4 - x).abs().max() > 0.01 else 0


def fault_by_growth(block, x):
    """Inputs of two sizes, and the difference that is left."""
    x = drawn_like(x, 4)
    changed = x.clone()
    changed[-1] = drawn_like(x[-1], 5)
    if differ(block(changed)[:-1], block(x)[:-1]):
        return 4
    changed = x.clone()
    changed[:, 1:] = drawn_like(x[:, 1:], 6)
    if differ(block(changed)[:, 0], block(x)[:, 0]):
        return 3
    added = [(block(f * x) - f * x).norm() for f in (1000, 2000)]
    plain = [block(f * x).norm() for f in (1000, 2000)]
    if plain[1] < 1.5 * plain[0]:  # no residual connection, or post-norm
        rows = block(x).norm(dim=-1)
        return 2 if differ(rows / rows.max(), torch.ones_like(rows)) is False else 1
    return 5 if added[1] > 1.5 * added[0] else 0


def fault_alone_and_in_company(block, x):
    """A sequence alone and in company, a prefix alone and continued."""
    x = drawn_like(x, 7)
    whole = block(x)
    if differ(block(x[:1]), whole[:1]):
        return 4
    if differ(block(x[:, :2]), whole[:, :2]):
        return 3
    if (
        not differ(whole.pow(2).mean(-1), torch.ones(x.shape[:2]))
        or (whole.pow(2).mean(-1) - 1).abs().max() < 1e-3
    ):
        return 2
    slope = (block(3000 * x) - block(1000 * x)) / 2000
    if slope.abs().max() < 0.1:
        return 1
    return 5 if (slope - x).abs().max() > 0.1 else 0


def fault_in_double(block, x):
    """The same tests in double precision, with a larger factor."""
    x = drawn_like(x, 8).double()
    usual = block(x)
    for number, axis, place in (4, 0, 0), (3, 1, -1):
        changed = x.clone()
        index = [slice(None)] * 3
        index[axis] = place
        changed[tuple(index)] *= -1.7
        kept = [slice(None)] * 3
        kept[axis] = slice(1, None) if place == 0 else slice(None, -1)
        if differ(block(changed)[tuple(kept)], usual[tuple(kept)]):
            return number
    large = block(1e6 * x) / 1e6
    if large.abs().max() < 1e-3:
        size = usual.square().mean(-1)
        return 2 if (size - 1).abs().max() < 1e-2 else 1
    return 0 if torch.allclose(large, x, atol=1e-3) else 5


def fault_by_three_inputs(block, x):
    """The median of the solution's diagnosis on three inputs."""
    found = [
        checks.check_block_fault.solution(block, drawn_like(x, seed))
        for seed in (1, 2, 3)
    ]
    return sorted(found)[1]


def explanation_backwards(model, ids, symbols):
    """Sequences that count backwards."""
    x = (symbols - 1 - torch.arange(ids.shape[1])) % symbols
    step = (model(x[None])[0] - x)[:-1] % symbols
    names = {1: 0, 0: 1, 2: 2, symbols - 1: 3}
    if len(step.unique()) > 1:
        return 4
    return names.get(int(step[0]), 4)


def explanation_by_one_changed_symbol(model, ids, symbols):
    """One symbol of the training sequence is changed."""
    before, changed = model(ids), ids.clone()
    changed[:, 2] = (changed[:, 2] + 1) % symbols
    after = model(changed)
    moved = (before != after)[0].nonzero().flatten().tolist()
    if not moved:
        return 4
    if moved == [1]:
        return 3
    return {0: 1, 1: 0, 2: 2}[int((after[0, 2] - changed[0, 2]) % symbols)]


def explanation_by_shuffling(model, ids, symbols):
    """The training sequence in another order."""
    order = torch.randperm(ids.shape[1], generator=torch.Generator().manual_seed(11))
    x = ids[:1, order]
    got, now, after = model(x)[0, :-1], x[0, :-1], x[0, 1:]
    tests = (now + 1) % symbols, now, (now + 2) % symbols, after
    return next((i for i, e in enumerate(tests) if (got == e).all()), 4)


def explanation_by_shares(model, ids, symbols):
    """The share of positions that fits each explanation."""
    rng = torch.Generator().manual_seed(5)
    x = torch.randint(symbols, (20, ids.shape[1]), generator=rng)
    got, now = model(x)[:, :-1], x[:, :-1]
    tests = (now + 1) % symbols, now, (now + 2) % symbols, x[:, 1:]
    fits = [(got == e).double().mean().item() for e in tests]
    return max(range(4), key=fits.__getitem__) if max(fits) == 1 else 4


def explanation_by_loops(model, ids, symbols):
    """Symbol by symbol, with lists."""
    rng = torch.Generator().manual_seed(6)
    x = torch.randint(symbols, (6, ids.shape[1]), generator=rng)
    got, left = model(x).tolist(), {0, 1, 2, 3}
    for row, found in zip(x.tolist(), got, strict=True):
        for t in range(len(row) - 1):
            says = [(row[t] + 1) % symbols, row[t], (row[t] + 2) % symbols]
            says.append(row[t + 1])
            left = {i for i in left if says[i] == found[t]}
    return left.pop() if left else 4


norm_in_double = in_double(checks.check_layer_norm.solution)
ANSWERS = collect_answers(
    vars(),
    check_layer_norm="norm",
    check_label_shift="loss",
    check_block="block",
    check_decoder_step="step",
    check_weight_tying="tied",
    check_model_cost="cost",
    check_block_fault="fault",
    check_accuracy_explanation="explanation",
)
