"""Right answers to the exercises of chapters/15_reading_heads."""

import copy
from itertools import pairwise

import numpy as np
import torch
from torch import einsum, nn

from attnbook.models.head_edits import ablate_heads
from right_answers import collect_answers, in_double


def induction_by_loops(weights, ids):
    found, T = [], len(ids)
    for t in range(T):
        after = [s + 1 for s in range(t) if ids[s] == ids[t]]
        if after:
            found.append(weights[:, t, after].sum(-1))
    if not found:
        return torch.zeros(len(weights))
    return torch.stack(found).mean(0)


def induction_by_einsum(weights, ids):
    same = (ids[:, None] == ids[None]).float().tril(-1)
    after = torch.zeros_like(same)
    after[:, 1:] = same[:, :-1]
    total = einsum("hts,ts->h", weights, after)
    return total / (same.sum(1) > 0).sum().clamp(min=1)


def induction_by_shifted_weights(weights, ids):
    same = torch.eq(ids[:, None], ids).tril(-1)
    shifted = torch.cat([weights[..., 1:], 0 * weights[..., :1]], -1)
    rows = same.any(1)
    if not rows.any():
        return weights.new_zeros(weights.shape[0])
    return (shifted * same).sum(-1)[:, rows].mean(-1)


def induction_by_numpy(weights, ids):
    w, x = weights.double().numpy(), ids.numpy()
    same = np.tril(x[:, None] == x, -1)
    marked = np.roll(same, 1, axis=1)
    marked[:, 0] = False
    sums = (w * marked).sum(-1)[:, same.any(1)]
    score = sums.mean(1) if sums.size else np.zeros(len(w))
    return torch.tensor(score, dtype=weights.dtype)


def induction_by_dictionary(weights, ids):
    before, scores, maps = {}, [[] for _ in weights], weights.tolist()
    for t, x in enumerate(ids.tolist()):
        for h, rows in enumerate(maps):
            if x in before:
                scores[h].append(sum(rows[t][s + 1] for s in before[x]))
        before.setdefault(x, []).append(t)
    return torch.tensor([sum(x) / len(x) if x else 0.0 for x in scores])


def rollout_by_sums_with_the_identity(weights):
    mixed = weights.mean(1) + torch.eye(weights.shape[-1])
    mixed = mixed / mixed.sum(-1, keepdim=True)
    result = mixed[0]
    for layer in mixed[1:]:
        result = layer @ result
    return result


def rollout_by_multi_dot(weights):
    T = weights.shape[-1]
    mixed = (weights.mean(1) + torch.eye(T, dtype=weights.dtype)) / 2
    mixed = torch.nn.functional.normalize(mixed, p=1, dim=-1)
    layers = [*mixed.flip(0)]
    return torch.linalg.multi_dot(layers) if len(layers) > 1 else layers[0]


def rollout_by_numpy_in_double(weights):
    mixed = weights.double().numpy().mean(1)
    mixed = 0.5 * mixed + 0.5 * np.eye(mixed.shape[-1])
    mixed /= mixed.sum(-1, keepdims=True)
    result = np.eye(mixed.shape[-1])
    for layer in mixed:
        result = layer @ result
    return torch.tensor(result, dtype=weights.dtype)


def rollout_from_the_last_layer(weights):
    L, H, T, _ = weights.shape
    result = torch.eye(T).to(weights)
    for i in reversed(range(L)):
        layer = weights[i].sum(0) / H
        layer = layer + torch.eye(T).to(weights)
        result = einsum("ij,jk->ik", result, layer / layer.sum(1)[:, None])
    return result


def ablated_by_a_view_of_the_columns(model, layer, head):
    new = copy.deepcopy(model)
    out = new.blocks[layer].attention.output
    heads = new.blocks[layer].attention.heads
    columns = out.weight.data.view(out.out_features, heads, -1)
    columns[:, head] = 0
    return new


def ablated_by_a_hook_on_a_copy(model, layer, head):
    new = copy.deepcopy(model)
    attention = new.blocks[layer].attention

    def hook(module, given):
        x = given[0].unflatten(-1, (attention.heads, -1)).clone()
        x[..., head, :] = 0
        return x.flatten(-2)

    attention.output.register_forward_pre_hook(hook)
    return new


class Without(nn.Module):
    """A model that runs without a head."""

    def __init__(self, model, layer, head):
        super().__init__()
        self.model, self.heads = copy.deepcopy(model), [(layer, head)]

    def forward(self, ids):
        with ablate_heads(self.model, self.heads):
            return self.model(ids)


def ablated_by_a_state_dict(model, layer, head):
    new = copy.deepcopy(model)
    state = {name: x.clone() for name, x in model.state_dict().items()}
    name = f"blocks.{layer}.attention.output.weight"
    parts = [*state[name].chunk(model.config.heads, dim=1)]
    parts[head] = torch.zeros_like(parts[head])
    state[name] = torch.cat(parts, dim=1)
    new.load_state_dict(state)
    return new


class Masked(nn.Module):
    """A linear layer without some of its inputs."""

    def __init__(self, linear, mask):
        super().__init__()
        self.linear = linear
        self.register_buffer("mask", mask)

    def forward(self, x):
        return self.linear(x * self.mask)


def ablated_by_another_layer(model, layer, head):
    new = copy.deepcopy(model)
    attention = new.blocks[layer].attention
    mask = torch.ones(attention.heads, model.config.width // attention.heads)
    mask[head] = 0
    attention.output = Masked(attention.output, mask.flatten())
    return new


def counts_by_ids(block, copies, before, distance):
    ids = torch.cat([torch.arange(before) + block, torch.arange(block).repeat(copies)])
    T = len(ids)
    t = torch.arange(T)
    head = (t - distance).clamp(min=0)
    same = (ids[:, None] == ids).tril(-1)
    after = torch.cat([torch.zeros(T, 1, dtype=torch.bool), same[:, :-1]], 1)
    return [
        int(same.any(1).sum()),
        int(after[t, head].sum()),
        int(same[t, head].sum()),
        int((head == t - 1).sum()),
    ]


def counts_by_formulas(block, copies, before, distance):
    length = before + block * copies
    scored = induction = duplicate = 0
    for t in range(before + block, length):
        scored += 1
        place = (t - before) // block
        s = max(t - distance, 0)
        first = t - block * place
        if s >= first and (t - s) % block == 0 and s < t:
            duplicate += 1
        if s - 1 >= first and (t - s + 1) % block == 0:
            induction += 1
    previous = length - 1 if distance == 1 else min(distance, length - 1, 1)
    return scored, induction, duplicate, previous


def counts_by_numpy(block, copies, before, distance):
    ids = np.r_[np.arange(-before, 0), np.tile(np.arange(block), copies)]
    t = np.arange(len(ids))
    s = np.maximum(t - distance, 0)
    scored = t >= before + block
    left = np.where(s > 0, ids[s - 1], -before - 1)
    return np.array(
        [
            scored.sum(),
            (scored & (left == ids)).sum(),
            (scored & (ids[s] == ids) & (s < t)).sum(),
            (s == t - 1).sum(),
        ]
    )


def counts_by_dictionary(block, copies, before, distance):
    ids = [f"x{i}" for i in range(before)] + [*range(block)] * copies
    where, counts = {}, [0, 0, 0, 0]
    for t, x in enumerate(ids):
        s = t - distance if t > distance else 0
        counts[3] += s + 1 == t
        if x in where:
            counts[0] += 1
            counts[1] += s - 1 in where[x]
            counts[2] += s in where[x]
        where.setdefault(x, set()).add(t)
    return counts


def counts_by_pairs(block, copies, before, distance):
    ids = [*range(100, 100 + before)] + [*range(block)] * copies
    pairs = [(t, max(t - distance, 0)) for t in range(len(ids))]
    old = [(t, s) for t, s in pairs if ids[t] in ids[:t]]
    return torch.tensor(
        [
            len(old),
            sum(s > 0 and ids[s - 1] == ids[t] for t, s in old),
            sum(s < t and ids[s] == ids[t] for t, s in old),
            sum(t - s == 1 for t, s in pairs),
        ]
    )


def fault_by_contributions(layer, x, heads):
    rng = torch.Generator().manual_seed(3)
    x = torch.randn(6, x.shape[1], generator=rng)
    before = layer(x, [])
    parts = {h: before - layer(x, [h]) for h in range(heads)}
    if (layer(x, []) - before).abs().max() > 1e-3:
        return 5
    if parts[0][:-1].abs().max() < 1e-4:
        return 6
    if parts[0][0].abs().max() < 1e-4:
        return 1
    bias = layer(x, list(range(heads)))
    if bias.abs().max() < 1e-5:
        return 3
    if (layer(x[:3], [0]) + parts[0][:3] - before[:3]).abs().max() > 1e-4:
        return 4
    whole = sum(parts.values()) + bias
    return 0 if (whole - before).abs().max() < 1e-3 else 2


def fault_by_the_first_row(layer, x, heads):
    rng = torch.Generator().manual_seed(4)
    x = torch.randn(5, x.shape[1], generator=rng)
    one = layer(x, [])
    two = layer(x, [heads - 1])
    three = layer(x, [])
    if not torch.allclose(one, three, atol=1e-4):
        return 5
    same = [torch.allclose(a, b, atol=1e-4) for a, b in zip(one, two, strict=True)]
    if same == [True, True, True, True, False]:
        return 6
    if same[0]:
        return 1
    short = layer(x[:2], [heads - 1])
    if not torch.allclose(short, two[:2], atol=1e-4):
        return 4
    rest = layer(x, [*range(heads)])
    if not bool(rest.abs().sum()):
        return 3
    both = layer(x, [0, heads - 1])
    return 0 if torch.allclose(one - two, layer(x, [0]) - both, atol=1e-4) else 2


def fault_with_inputs_of_zeros(layer, x, heads):
    """An input of zeros has no outputs of heads: the layer returns its bias."""
    C = x.shape[1]
    zero = torch.zeros(3, C)
    bias = layer(zero, [])
    if (layer(zero, [0]) - bias).abs().max() > 1e-4:
        return 3
    x = torch.linspace(-2, 2, 7 * C).sin().reshape(7, C) + torch.eye(7, C)
    whole = layer(x, [])
    gone = layer(x, [1])
    if (layer(x, []) - whole).abs().max() > 1e-4:
        return 5
    change = (whole - gone).abs().amax(-1) > 1e-4
    if not change[0]:
        return 1 if change[2] else 6
    if (layer(x[:3], [1]) - gone[:3]).abs().max() > 1e-4:
        return 4
    alone = [layer(x, [g for g in range(heads) if g != h]) for h in range(heads)]
    total = sum(y - bias[0] for y in alone) + bias[0]
    return 0 if (total - whole).abs().max() < 1e-3 else 2


def fault_by_table(layer, x, heads):
    g = torch.Generator().manual_seed(9)
    x = torch.randn(9, x.shape[1], generator=g)
    w, a, b = layer(x, []), layer(x, [0]), layer(x, [1])
    ab, none, again = layer(x, [0, 1]), layer(x, range(heads)), layer(x, [])
    x2 = x.clone()
    x2[-1] *= -1
    a2 = layer(x2, [0])

    def far(p, q):
        return bool((p - q).abs().max() > 1e-4)

    facts = {
        5: far(w, again),
        6: not far(a[:8], w[:8]),
        1: not far(a[0], w[0]),
        4: far(a2[:8], a[:8]),
        3: not none.any(),
        2: far(a + b, ab + w),
    }
    return next((n for n in (5, 6, 1, 4, 3, 2) if facts[n]), 0)


def fault_as_tensor(*given):
    return torch.tensor(fault_by_table(*given))


def kind_by_random_sequences(head, ids):
    rng = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 8, (60,), generator=rng).tolist()
    found = head(tokens)

    def rule(kind):
        out = []
        for t, x in enumerate(tokens):
            s = [i for i in range(t) if tokens[i] == x]
            if kind == 3:
                pairs = list(pairwise(tokens))
                s = [i for i in s if i and pairs[i - 1] == pairs[t - 1]]
            if kind == 4 or not s:
                out.append(0)
            else:
                out.append(s[-1] + (kind != 1))
        return out

    kinds = [k for k in (0, 1, 3, 4) if rule(k) == found]
    return kinds[0] if kinds else 2


def kind_by_two_gaps(head, ids):
    start = [*range(50, 64)]
    near = head([*start, 1, 2, 3, 1])[-1]
    far = head([*start, 1, 2, 3, 4, 5, 1])[-1]
    if near == far == 15:
        return 0
    if near == far == 14:
        return 1
    if near == far == 0:
        pair = head([*start, 7, 1, 2, 3, 7, 1])[-1]
        return 3 if pair == 16 else 4
    return 2


def kind_by_elimination(head, ids):
    if head([*range(30)])[29] != 0:
        return 2
    twice = head([0, 1, 2, 1, 2])
    if twice[3] == 2:
        return 0
    if twice[3] == 1:
        return 1
    return 3 if twice[4] == 3 else 4


def kind_as_tensor(head, ids):
    return torch.tensor(kind_by_two_gaps(head, ids))


def kind_by_one_sequence(head, ids):
    tokens = [*range(20, 40), 5, 6, 7, 8, 5, 9, 10, 6, 7]
    got = head(tokens)
    if got[19]:
        return 2
    if got[24]:
        return 0 if got[24] == 21 else 1
    return 3 if got[28] else 4


rollout_in_double = in_double(rollout_by_multi_dot)
ablated_in_a_module_around_a_copy = Without
ANSWERS = collect_answers(
    vars(),
    check_attention_rollout="rollout",
    check_induction_score="induction",
    check_ablate_head="ablated",
    check_score_counts="counts",
    check_ablation_fault="fault",
    check_head_kind="kind",
)
