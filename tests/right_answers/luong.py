"""Right answers to the exercises of chapters/03_luong."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import luong as checks
from right_answers import collect_answers, in_double


def general_by_loops(query, key, W):
    rows = []
    for t in range(query.shape[1]):
        row = [((query[:, t] @ W) * key[:, s]).sum(-1) for s in range(key.shape[1])]
        rows.append(torch.stack(row, dim=-1))
    return torch.stack(rows, dim=1)


def general_bilinear_on_pairs(query, key, W):
    t, s = query.shape[1], key.shape[1]
    return F.bilinear(
        query[:, :, None].expand(-1, -1, s, -1).contiguous(),
        key[:, None].expand(-1, t, -1, -1).contiguous(),
        W[None],
    )[..., 0]


def general_by_singular_values(query, key, W):
    U, sizes, V = torch.linalg.svd(W.double(), full_matrices=False)
    left, right = query.double() @ (U * sizes), key.double() @ V.mT
    return (left @ right.mT).to(query.dtype)


def general_turned_round(query, key, W):
    return (key @ (query @ W).mT).mT


class General(nn.Module):
    """Module style: the keys go through a linear layer once."""

    def forward(self, query, key, W):
        return torch.bmm(query, F.linear(key, W).transpose(1, 2))


def general_sentence_by_sentence(query, key, W):
    return torch.stack([q @ W @ k.T for q, k in zip(query, key, strict=True)])


def general_by_einsum(q, k, W):
    return torch.einsum("btd,de,bse->bts", q, W, k)


def general_with_the_query_first(q, k, W):
    return q @ W @ k.transpose(-1, -2)


def joined(query, key):
    t, s = query.shape[1], key.shape[1]
    left = query.repeat_interleave(s, dim=1)
    right = key.repeat(1, t, 1)
    return torch.cat([left, right], dim=-1).unflatten(1, (t, s))


def concat_by_pairs(query, key, W, v):
    return torch.tanh(F.linear(joined(query, key), W)) @ v


def concat_by_loops(query, key, W, v):
    rows = []
    for t in range(query.shape[1]):
        row = []
        for s in range(key.shape[1]):
            pair = torch.cat([query[:, t], key[:, s]], dim=-1)
            row.append((torch.tanh(pair @ W.T) * v).sum(-1))
        rows.append(torch.stack(row, dim=-1))
    return torch.stack(rows, dim=1)


def concat_by_einsum(query, key, W, v):
    width = query.shape[-1]
    queries = torch.einsum("btd,ad->bta", query, W[:, :width])
    keys = torch.einsum("bsd,ad->bsa", key, W[:, width:])
    hidden = torch.tanh(queries.unsqueeze(2) + keys.unsqueeze(1))
    return torch.einsum("btsa,a->bts", hidden, v)


def concat_in_blocks_of_queries(query, key, W, v):
    W_query, W_key = torch.tensor_split(W, [query.shape[-1]], dim=1)
    keys = (key @ W_key.T)[:, None]
    blocks = [
        torch.tanh((block @ W_query.T)[:, :, None] + keys) @ v
        for block in query.split(2, dim=1)
    ]
    return torch.cat(blocks, dim=1)


def concat_with_tanh_from_a_sigmoid(query, key, W, v):
    return (2 * torch.sigmoid(2 * joined(query, key) @ W.T) - 1) @ v


def concat_with_zeros_beside(query, key, W, v):
    """Put zeros where the other one stands, and add."""
    queries = F.pad(query, (0, key.shape[-1])) @ W.T
    keys = F.pad(key, (query.shape[-1], 0)) @ W.T
    return torch.tanh(queries[:, :, None] + keys[:, None]) @ v


def window_by_loops(centre, places, reach):
    return torch.tensor(
        [
            [[abs(s - c) <= reach for s in range(places)] for c in row]
            for row in centre.tolist()
        ]
    )


def window_by_slices(centre, places, reach):
    seen = torch.zeros(*centre.shape, places, dtype=torch.bool)
    for b, row in enumerate(centre.tolist()):
        for t, c in enumerate(row):
            begin = max(0, math.ceil(c - reach))
            end = max(0, math.floor(c + reach) + 1)
            seen[b, t, begin:end] = True
    return seen


def window_by_two_edges(centre, places, reach):
    s = torch.arange(places, dtype=centre.dtype)
    low, high = (centre - reach).unsqueeze(-1), (centre + reach).unsqueeze(-1)
    return torch.logical_and(s >= low, s <= high)


def window_by_numpy(centre, places, reach):
    away = np.arange(places) - centre.numpy(force=True)[..., None]
    return torch.from_numpy(np.abs(away) <= reach)


def window_by_squares(centre, places, reach):
    s = torch.arange(places).view(1, 1, -1).double()
    return (s - centre.double()[:, :, None]).square() <= reach**2


def window_not_outside(centre, places, reach):
    away = centre[:, :, None] - torch.arange(places)[None, None]
    return ~((away > reach) | (away < -reach))


def window_by_filling(centre, places, reach):
    away = torch.linspace(0, places - 1, places).round() - centre[..., None]
    seen = torch.zeros_like(away)
    seen[away.abs() <= reach] = 1
    return seen.bool()


def depth_by_finishing_times(kind, T, L):
    """Every computation finishes one arrow after the last that it waits for."""
    state = [0] * L
    vector = 0
    for _ in range(T):
        if kind == "before":
            lowest = state[-1] + 1
        else:
            lowest = vector if kind == "feeding" else 0
        for layer in range(L):
            below = lowest if layer == 0 else state[layer - 1]
            state[layer] = max(state[layer], below) + 1
        context = lowest if kind == "before" else state[-1] + 1
        vector = max(context, state[-1]) + 1
    return vector


def depth_by_table(kind, T, L):
    return {
        "before": 1 + T + T * L,
        "after": 1 + T + L,
        "feeding": 2 * T + T * L,
    }[kind]


def depth_by_recursion(kind, T, L):
    if T == 1:
        return L + 2
    more = {"before": L + 1, "after": 1, "feeding": L + 2}[kind]
    return depth_by_recursion(kind, T - 1, L) + more


def depth_by_depth_first_search(kind, T, L):
    """Memoized depth-first search over the arrows."""
    known = {}

    def inputs(node):
        name, t, layer = node
        if name == "h":
            if t == 0:
                return []
            found = [("h", t - 1, layer)]
            if layer > 1:
                found.append(("h", t, layer - 1))
            elif kind == "before":
                found.append(("c", t, 0))
            elif kind == "feeding" and t > 1:
                found.append(("o", t - 1, 0))
            return found
        if name == "c":
            return [("h", t - (kind == "before"), L)]
        return [("c", t, 0), ("h", t, L)]

    def depth(node):
        if node not in known:
            known[node] = max((depth(x) + 1 for x in inputs(node)), default=0)
        return known[node]

    for t in range(1, T + 1):
        depth(("o", t, 0))
    return depth(("o", T, 0))


def depth_with_numpy(kind, T, L):
    each = np.array([L + 1, 1, L + 2])[["before", "after", "feeding"].index(kind)]
    return int(T * each + {"before": 1, "after": L + 1, "feeding": 0}[kind])


def layer_by_gradients(layer, states, memory, lengths):
    """Autograd tells what the weights of a query depend on."""
    rng = torch.Generator().manual_seed(3)
    batch, _, width = states.shape
    states = torch.randn(batch, 4, width, generator=rng).requires_grad_()
    memory = torch.randn(memory.shape, generator=rng).requires_grad_()
    if layer(states, memory, lengths - 2)[1][..., -2:].abs().sum() > 0:
        return 2
    weights = layer(states, memory, lengths)[1]
    upstream = torch.randn(weights[:, 0].shape, generator=rng)
    given = {"retain_graph": True, "allow_unused": True}
    by_state, by_memory = torch.autograd.grad(
        weights[:, 0], (states, memory), upstream, **given
    )
    if by_state is not None and by_state[:, 1:].abs().max() > 1e-6:
        return 1
    if by_memory is None or not by_memory.any():
        return 3
    if not all(half.any() for half in by_memory.chunk(2, -1)):
        return 5
    order = torch.randperm(memory.shape[1], generator=rng)
    moved = layer(states, memory[:, order], lengths)[1]
    return 0 if torch.allclose(moved, weights[..., order], atol=1e-5) else 4


def layer_by_ratios_of_weights(layer, states, memory, lengths):
    """A changed key must not change the ratio of two other weights."""
    base = torch.linspace(-2, 2, memory.numel()).sin().reshape(memory.shape)
    width = states.shape[-1]
    asked = torch.linspace(-1, 1, 2 * width).cos().reshape(1, 2, width)
    asked = asked.expand(len(states), -1, -1)
    weights = layer(asked, base, lengths)[1]
    alone = layer(asked[:, 1:], base, lengths)[1]
    if not torch.allclose(alone, weights[:, 1:], atol=1e-5):
        return 1
    if float(layer(asked, base, lengths - 1)[1][:, :, -1].max()) > 1e-7:
        return 2
    if torch.allclose(layer(asked, -base, lengths)[1], weights, atol=1e-5):
        return 3
    changed = base.clone()
    changed[:, 0] += 1
    ratio = [
        w[..., 1:] / w[..., 1:].sum(-1, keepdim=True)
        for w in (weights, layer(asked, changed, lengths)[1])
    ]
    if not torch.allclose(*ratio, atol=1e-5):
        return 4
    for columns in (slice(0, width // 2), slice(width // 2, width)):
        changed = base.clone()
        changed[..., columns] *= -1
        if torch.allclose(layer(asked, changed, lengths)[1], weights, atol=1e-5):
            return 5
    return 0


def layer_sentence_by_sentence(layer, states, memory, lengths):
    found = [
        layer_by_gradients(layer, *(x[i : i + 1] for x in (states, memory, lengths)))
        for i in range(len(states))
    ]
    return max(found)


def layer_by_longer_input(layer, states, memory, lengths):
    """Other numbers of queries and positions than in the example."""
    rng = torch.Generator().manual_seed(8)
    more = torch.randn(2, 9, memory.shape[2], generator=rng)
    asked = torch.randn(2, 5, memory.shape[2], generator=rng)
    return layer_by_ratios_of_weights(layer, asked, more, torch.tensor([9, 9]))


def layer_by_table(layer, states, memory, lengths):
    """Every test is made, then the first that fails is looked up."""
    rng = torch.Generator().manual_seed(1)
    batch, size, width = memory.shape
    q = torch.randn(batch, 2, width, generator=rng)
    m, other = torch.randn(2, batch, size, width, generator=rng)

    def look(states, memory, lengths=lengths):
        return layer(states, memory, lengths)[1]

    def same(a, b):
        return torch.allclose(a, b, atol=1e-5)

    w, half = look(q, m), width // 2
    tests = {
        1: not same(look(q[:, :1], m), w[:, :1]),
        2: bool((look(q, m, lengths - 1)[..., -1] != 0).any()),
        3: same(look(q, other), w),
        4: not same(look(q, m.roll(1, 1)), w.roll(1, -1)),
        5: same(look(q, torch.cat([m[..., :half], other[..., half:]], -1)), w)
        or same(look(q, torch.cat([other[..., :half], m[..., half:]], -1)), w),
    }
    return next((number for number, failed in tests.items() if failed), 0)


def factors_by_least_squares(error):
    """Least squares on score, order and their product."""
    rows, errors = [], []
    for dot, score in enumerate(("additive", "dot")):
        for after, order in enumerate(("before", "after")):
            for seed in range(60):
                rows.append([1, dot, after, dot * after])
                errors.append(error(score, order, seed))
    fitted = np.linalg.lstsq(np.array(rows), np.array(errors), rcond=None)[0]
    _, dot, after, product = np.abs(fitted) > 2.5
    return 4 if product else int(dot) + 2 * int(after)


def factors_by_the_middle_of_the_extremes(error):
    """The middle of the extremes, with chance between two bounds."""

    def middle(score, order):
        found = sorted(error(score, order, seed) for seed in range(200))
        return (found[0] + found[-1]) / 2

    corners = [middle(s, o) for s in ("additive", "dot") for o in ("before", "after")]
    base, after, dot, both = corners
    if abs(both - dot - after + base) > 2.5:
        return 4
    return (abs(dot - base) > 2.5) + 2 * (abs(after - base) > 2.5)


def factors_by_a_table_of_differences(error):
    """The pattern of differences is looked up."""
    mean = {
        (s, o): np.mean([error(s, o, seed) for seed in range(100, 180)])
        for s in ("additive", "dot")
        for o in ("before", "after")
    }
    changed = tuple(
        bool(abs(mean[a] - mean[b]) > 2.5)
        for a, b in (
            (("additive", "before"), ("dot", "before")),
            (("additive", "after"), ("dot", "after")),
            (("additive", "before"), ("additive", "after")),
            (("dot", "before"), ("dot", "after")),
        )
    )
    return {
        (False,) * 4: 0,
        (True, True, False, False): 1,
        (False, False, True, True): 2,
        (True,) * 4: 3,
    }.get(changed, 4)


def factors_with_tensors(error):
    found = torch.tensor(
        [
            [[error(s, o, seed) for seed in range(50)] for o in ("before", "after")]
            for s in ("additive", "dot")
        ]
    ).mean(-1)
    if (found[1, 1] - found[1, 0] - found[0, 1] + found[0, 0]).abs() > 2.5:
        return 4
    score = (found[1] - found[0]).mean().abs() > 2.5
    order = (found[:, 1] - found[:, 0]).mean().abs() > 2.5
    return int(score) + 2 * int(order)


def factors_by_blocks_of_seeds(error):
    """Seeds are added in blocks; the decision is made at the end."""
    total = dict.fromkeys(
        [(s, o) for s in ("dot", "additive") for o in ("after", "before")], 0.0
    )
    seeds = 0
    while seeds < 64:
        for seed in range(seeds, seeds + 16):
            for pair in total:
                total[pair] += error(*pair, seed)
        seeds += 16
    of = {pair: x / seeds for pair, x in total.items()}
    by_score = [of["dot", o] - of["additive", o] for o in ("before", "after")]
    by_order = of["additive", "after"] - of["additive", "before"]
    if abs(by_score[1] - by_score[0]) > 2.5:
        return 4
    return 2 * (abs(by_order) > 2.5) + (abs(by_score[0]) > 2.5)


general_in_double = in_double(checks.check_general_scores.solution)
general_in_a_module = General()
concat_in_double = in_double(checks.check_concat_scores.solution)
ANSWERS = collect_answers(
    vars(),
    check_general_scores="general",
    check_concat_scores="concat",
    check_local_window="window",
    check_decoder_depth="depth",
    check_attention_fault="layer",
    check_two_factors="factors",
)
