"""Right answers to the exercises of chapters/12_efficient_attention."""

import numpy as np
import torch
from torch import einsum
from torch.nn.functional import elu

from attnbook.exercises import efficient_attention as checks
from right_answers import collect_answers, in_double


def phi(x):
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def linear_by_sums_of_states(query, key, value):
    query, key = elu(query) + 1, elu(key) + 1
    states = (key[..., None] * value[..., None, :]).cumsum(2)
    sums = key.cumsum(2)
    output = einsum("bhtd,bhtde->bhte", query, states)
    return output / einsum("bhtd,bhtd->bht", query, sums)[..., None]


def linear_query_by_query(query, key, value):
    query, key = elu(query) + 1, elu(key) + 1
    rows = []
    for t in range(query.shape[2]):
        weights = key[:, :, : t + 1] @ query[:, :, t, :, None]
        total = (weights * value[:, :, : t + 1]).sum(2)
        rows.append(total / weights.sum(2))
    return torch.stack(rows, 2)


def linear_with_exponentials(query, key, value):
    weights = einsum("...td,...sd->...ts", phi(query), phi(key))
    future = torch.ones(2 * weights.shape[-1:]).triu(1).bool()
    weights = weights.masked_fill(future, 0.0)
    return (weights / weights.sum(-1, keepdim=True)) @ value


def linear_with_a_column_of_ones(query, key, value):
    query, key = elu(query) + 1, elu(key) + 1
    both = torch.cat([value, torch.ones_like(value[..., :1])], -1)
    found = (query @ key.mT).tril() @ both
    return found[..., :-1] / found[..., -1:]


def linear_step_by_step(query, key, value):
    B, H, T, D = query.shape
    state = value.new_zeros(B, H, D, value.shape[-1])
    normalizer = value.new_zeros(B, H, D)
    rows = []
    for t in range(T):
        inputs = (x[:, :, t] for x in (query, key, value))
        output, state, normalizer = step_by_einsum(state, normalizer, *inputs)
        rows.append(output)
    return torch.stack(rows, 2)


def step_by_einsum(state, normalizer, query, key, value):
    query, key = phi(query), phi(key)
    state = state + einsum("bhd,bhe->bhde", key, value)
    normalizer = normalizer + key
    output = einsum("bhd,bhde->bhe", query, state)
    total = einsum("bhd,bhd->bh", query, normalizer)
    return output / total[..., None], state, normalizer


def step_with_a_column(state, normalizer, query, key, value):
    query, key = elu(query) + 1, elu(key) + 1
    both = torch.cat([state, normalizer[..., None]], -1)
    ones = torch.ones_like(value[..., :1])
    both = both + key[..., None] * torch.cat([value, ones], -1)[..., None, :]
    found = (query[..., None] * both).sum(-2)
    return found[..., :-1] / found[..., -1:], both[..., :-1], both[..., -1]


def step_adding_the_own_key(state, normalizer, query, key, value):
    query, key = elu(query) + 1, elu(key) + 1
    own = (query * key).sum(-1, keepdim=True)
    before = (query[..., None] * state).sum(-2)
    total = (query * normalizer).sum(-1, keepdim=True) + own
    output = (before + own * value) / total
    state = state + key[..., None] @ value[..., None, :]
    return output, state, normalizer + key


def step_by_clones(state, normalizer, query, key, value):
    state, normalizer = state.clone(), normalizer.clone()
    phi_key = elu(key) + 1
    state += phi_key.unsqueeze(-1) * value.unsqueeze(-2)
    normalizer += phi_key
    phi_query = (elu(query) + 1).unsqueeze(-2)
    divisor = phi_query @ normalizer.unsqueeze(-1)
    return ((phi_query @ state) / divisor).squeeze(-2), state, normalizer


def delta_by_einsum(state, query, key, value, beta):
    old = einsum("bhd,bhde->bhe", key, state)
    state = state + einsum("bh,bhd,bhe->bhde", beta, key, value - old)
    return einsum("bhd,bhde->bhe", query, state), state


def delta_by_a_matrix(state, query, key, value, beta):
    write = beta[..., None, None] * key[..., None]
    reflect = torch.eye(key.shape[-1]) - write @ key[..., None, :]
    state = reflect.to(state) @ state + write @ value[..., None, :]
    return (query[..., None, :] @ state).squeeze(-2), state


def delta_by_erasing(state, query, key, value, beta):
    old = (key[..., None] * state).sum(-2)
    new = beta[..., None] * value + (1 - beta[..., None]) * old
    state = state - key[..., None] * old[..., None, :]
    state = state + key[..., None] * new[..., None, :]
    return (query[..., None] * state).sum(-2), state


def delta_by_clones(state, query, key, value, beta):
    new = state.clone()
    old = (key.unsqueeze(-2) @ state).squeeze(-2)
    new += (beta[..., None] * key)[..., None] * (value - old)[..., None, :]
    return (query.unsqueeze(-2) @ new).squeeze(-2), new


def longformer_by_loops(length, reach, global_positions):
    mask = torch.zeros(length, length, dtype=torch.bool)
    for t in range(length):
        mask[t, max(0, t - reach) : t + reach + 1] = True
    for position in global_positions:
        mask[position] = True
        mask[:, position] = True
    return mask


def longformer_by_triangles(length, reach, global_positions):
    ones = torch.ones(length, length)
    mask = ones.tril(reach).triu(-reach).bool()
    for position in global_positions:
        mask[position, :] = mask[:, position] = True
    return mask


def longformer_by_numpy(length, reach, global_positions):
    index = np.arange(length)
    mask = abs(np.subtract.outer(index, index)) <= reach
    chosen = np.isin(index, global_positions)
    return torch.from_numpy(mask | np.logical_or.outer(chosen, chosen))


def longformer_by_lists(length, reach, global_positions):
    chosen = set(global_positions)
    return torch.tensor(
        [
            [abs(t - s) <= reach or bool({t, s} & chosen) for s in range(length)]
            for t in range(length)
        ]
    )


def longformer_of_what_is_hidden(length, reach, global_positions):
    index = torch.arange(length)
    local = torch.ones(length, dtype=torch.bool)
    local[torch.tensor(global_positions, dtype=torch.long)] = False
    far = (index[:, None] - index).abs() > reach
    return ~(far & local & local[:, None])


def sinks_by_loops(length, window, sinks):
    mask = torch.zeros(length, length, dtype=torch.bool)
    for t in range(length):
        mask[t, max(0, t - window + 1) : t + 1] = True
        mask[t, : min(sinks, t + 1)] = True
    return mask


def sinks_by_triangles(length, window, sinks):
    past = torch.ones(length, length).tril().bool()
    near = past.triu(1 - window)
    near[:, :sinks] = past[:, :sinks]
    return near


def sinks_by_numpy(length, window, sinks):
    index = np.arange(length)
    back = index[:, None] - index
    mask = (back >= 0) & ((back < window) | (index < sinks))
    return torch.from_numpy(mask)


def sinks_by_lists(length, window, sinks):
    return torch.tensor(
        [
            [s <= t and (t - s < window or s < sinks) for s in range(length)]
            for t in range(length)
        ]
    )


def sinks_of_what_is_hidden(length, window, sinks):
    index = torch.arange(length)
    query, key = index[:, None], index[None]
    forgotten = (key <= query - window) & (key >= sinks)
    return ~(forgotten | (key > query))


def counts_by_powers_of_masks(length, window, step, sinks, layers):
    index = torch.arange(length)
    back = index[:, None] - index
    near = (back < window * step) & (back % step == 0)
    mask = (back >= 0) & (near | (index < sinks))
    one, reached, least = mask.double(), mask.double(), 0
    found = [mask[-1]]
    for _ in range(2 * length):
        reached = (reached @ one).clamp(max=1)
        found.append(reached[-1] > 0)
    for depth, row in enumerate(found, 1):
        if row.all():
            least = depth
            break
    row = found[min(layers, len(found)) - 1]
    return [int(mask[-1].sum()), int(mask.sum()), int(row.sum()), least]


def counts_by_formulas(length, window, step, sinks, layers):
    last = length - 1

    def back(query, hops):
        first = min(query // step, hops)
        near = {query - i * step for i in range(first + 1)}
        return near | {s for s in range(sinks) if s <= query}

    scores = sum(len(back(t, window - 1)) for t in range(length))
    within = len(back(last, layers * (window - 1)))
    depth = 0
    if len(back(last, length * (window - 1))) == length:
        far = last - sinks
        depth = 1 if far < window else -(-far // (window - 1))
    return [len(back(last, window - 1)), scores, within, depth]


def counts_layer_by_layer(length, window, step, sinks, layers):
    sees = [
        [
            s <= t and (s < sinks or ((t - s) % step == 0 and t - s < window * step))
            for s in range(length)
        ]
        for t in range(length)
    ]
    reach = [t == length - 1 for t in range(length)]
    sizes = []
    for _ in range(max(layers, length)):
        reach = [
            any(reach[t] and sees[t][s] for t in range(length)) for s in range(length)
        ]
        sizes.append(sum(reach))
    depth = sizes.index(length) + 1 if length in sizes else 0
    return sum(sees[-1]), sum(map(sum, sees)), sizes[layers - 1], depth


def counts_by_numpy(length, window, step, sinks, layers):
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


def counts_by_breadth_first_search(length, window, step, sinks, layers):
    """The distance of each input: a search in breadth."""

    def keys(t):
        near = [t - i * step for i in range(window) if t >= i * step]
        return sorted({*near, *range(min(sinks, t + 1))})

    far = {length - 1: 0}
    queue = [length - 1]
    for t in queue:
        for s in keys(t):
            if s not in far:
                far[s] = far[t] + 1
                queue.append(s)
    return [
        len(keys(length - 1)),
        sum(len(keys(t)) for t in range(length)),
        sum(d <= layers for d in far.values()),
        max(far.values()) if len(far) == length else 0,
    ]


def fault_by_table_in_double(attention, query, key, value):
    n = 30
    same = torch.zeros(n, 4, dtype=torch.float64)
    values = torch.eye(n, dtype=torch.float64, requires_grad=True)
    weights = attention(same, same, values)
    again = attention(same, same, values)
    (reached,) = torch.autograd.grad(weights[n - 1].sum(), values)
    right = torch.ones(n, n, dtype=torch.float64).tril()
    right = right / right.sum(1, keepdim=True)

    def close(a, b):
        return bool(((a - b).abs() < 1e-4).all())

    if not close(weights, again):
        return 5
    if close(weights, right):
        return 0 if reached.abs().sum(1).bool().all() else 6
    if close(weights.diagonal(), torch.zeros(n)):
        return 2
    if close(weights.sum(1), torch.ones(n)):
        return 4
    return 3 if close(weights[:, 0], right[:, 0] / 4) else 1


def fault_with_ordinary_inputs(attention, query, key, value):
    rng = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(25, 3, generator=rng) for _ in range(3))
    value.requires_grad_()
    phi_query, phi_key = elu(query) + 1, elu(key) + 1
    raw = phi_query @ phi_key.T
    past = raw.tril()
    right = past @ value / past.sum(1, keepdim=True)
    apart = phi_query.sum(1) * phi_key.sum(1).cumsum(0)
    known = {
        0: right,
        1: past @ value / raw.sum(1, keepdim=True),
        3: past @ value / apart[:, None],
    }
    found = attention(query, key, value)
    if (attention(query, key, value) - found).abs().max() > 1e-3:
        return 5
    if found[0].abs().max() < 1e-6:
        return 2
    equal = [x for x, y in known.items() if torch.allclose(found, y, atol=1e-3)]
    (up,) = torch.autograd.grad(found[24].sum(), value)
    return 6 if equal == [0] and (up == 0).any() else [*equal, 4][0]


def fault_by_constant_values(attention, query, key, value):
    n = 17
    zero, ones = torch.zeros(n, 5), torch.ones(n, 1)
    sums = attention(zero, zero, ones)[:, 0]
    if torch.any(attention(zero, zero, 3 * ones)[:, 0] > 3.01) or torch.any(
        (attention(zero, zero, 0 * ones) - 0).abs() > 1e-4
    ):
        return 5
    if abs(sums[0]) < 1e-4:
        return 2
    if abs(sums[0] - 1 / n) < 1e-4:
        return 1
    if abs(sums[0] - 1 / 5) < 1e-4:
        return 3
    first = torch.zeros(n, 1)
    first[0] = 1.0
    first.requires_grad_()
    last = attention(zero, zero, first)[-1].sum()
    if abs(last.item() - 1 / n) > 1e-4:
        return 4
    last.backward()
    return 0 if first.grad[0].item() else 6


def fault_position_by_position(attention, query, key, value):
    n = 12
    zero = torch.zeros(n, 2)
    rows = []
    for s in range(n):
        one = torch.zeros(n, 1)
        one[s] = 1.0
        rows.append(attention(zero, zero, one)[:, 0])
    weights = torch.stack(rows, 1)
    # A kept state leaves something of the value before at every position.
    if (weights.triu(1).abs() > 1e-4).any():
        return 5
    if weights[0, 0] < 1e-4:
        return 2
    if abs(weights[0, 0] - 1 / n) < 1e-4:
        return 1
    if abs(weights[0, 0] - 0.5) < 1e-4:
        return 3
    if weights[-1, 0] < 1e-4:
        return 4
    value = torch.ones(n, 1, requires_grad=True)
    attention(zero, zero, value)[-1].backward()
    return 0 if value.grad[0] else 6


def fault_as_tensor(attention, query, key, value):
    return torch.tensor(fault_by_table_in_double(attention, query, key, value))


def kind_by_a_second_value_of_zero(memory, keys, values):
    key = torch.tensor([0.0, 1.0, 0.0])
    written = torch.tensor([[4.0], [0.0]])
    found = memory(key, torch.stack([key, key]), written).item()
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
        first = torch.zeros(9, 1)
        first[0] = 1.0
        return 0 if memory(key, filler, first).item() > 1e-3 else 1
    found = memory(key, pair, value).item()
    return {6: 2, 5: 3}.get(round(found, 2), 4)


def kind_by_comparing_every_kind(memory, keys, values):
    """Each kind is written down, and compared."""
    key = torch.eye(3)[[0, 1, 0, 2, 2, 1, 0, 0]]
    value = torch.arange(8.0)[:, None] ** 2 + 1
    query = torch.tensor([1.0, 0.5, -0.5])
    found = memory(query, key, value)

    def softmax(first):
        return (key[first:] @ query).softmax(0) @ value[first:]

    state = torch.zeros(3, 1)
    for k, v in zip(key, value, strict=True):
        state = state + k[:, None] * (v - k @ state)
    known = [(0, softmax(0)), (2, query @ key.T @ value), (3, query @ state)]
    known += [(1, softmax(first)) for first in range(1, 8)]
    for number, expected in known:
        if torch.allclose(found, expected, rtol=1e-3):
            return number
    return 4


def kind_by_one_value(memory, keys, values):
    """Pairs without a value, after one with a value."""
    key = torch.tensor([1.0])

    def read(pairs):
        value = torch.zeros(pairs, 1)
        value[0] = 1.0
        return memory(key, torch.ones(pairs, 1), value).item()

    two, many = read(2), read(10)
    if abs(two - 0.5) < 0.01:
        return 0 if many > 0.05 else 1
    return 3 if two < 0.01 else 2 if two > 0.99 else 4


def kind_as_numpy(memory, keys, values):
    return np.int64(kind_by_one_value(memory, keys, values))


linear_in_double = in_double(checks.check_linear_attention.solution)
step_in_double = in_double(checks.check_recurrent_step.solution)
delta_in_double = in_double(checks.check_delta_step.solution)
ANSWERS = collect_answers(
    vars(),
    check_linear_attention="linear",
    check_recurrent_step="step",
    check_delta_step="delta",
    check_longformer_mask="longformer",
    check_sink_window="sinks",
    check_pattern_counts="counts",
    check_linear_fault="fault",
    check_memory_kind="kind",
)
