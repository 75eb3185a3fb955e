"""The exercises on self-attention: right answers in other words, wrong ones."""

import torch
from torch.nn import functional as F

from answers import make_tests
from attnbook.attention.scaled_dot_product import attend
from attnbook.exercises import self_attention as chapter


def cross_in_double(x, memory, *matrices):
    pairs = zip((x, memory, memory), matrices, strict=True)
    query, key, value = (F.linear(z.double(), W.double()) for z, W in pairs)
    scores = torch.einsum("btd,bsd->bts", query, key) / key.shape[-1] ** 0.5
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return (powers / powers.sum(-1, keepdim=True) @ value).to(x.dtype)


def causal_one_beginning_at_a_time(x, W_query, W_key, W_value):
    rows = []
    for t in range(x.shape[1]):
        some = x[:, : t + 1]
        row = attend(some[:, -1:] @ W_query.T, some @ W_key.T, some @ W_value.T)
        rows.append(row[:, 0])
    return torch.stack(rows, dim=1)


def causal_by_adding_minus_infinity(x, W_query, W_key, W_value):
    T = x.size(1)
    hidden = torch.full((T, T), float("-inf"), dtype=x.dtype).triu(1)
    scores = (x @ W_query.T) @ (x @ W_key.T).mT / W_query.size(0) ** 0.5
    return torch.softmax(scores + hidden, dim=-1) @ (x @ W_value.T)


def changed_by_masks(layers, T, S, part, position):
    """Multiply one boolean row by the mask of each layer."""
    changed = torch.zeros(T, dtype=torch.bool)
    if part == "x":
        changed[position] = True
    for layer in layers:
        if layer == "cross":
            changed = changed | (part == "memory")
        else:
            mask = torch.ones(T, T, dtype=torch.bool)
            mask = mask.tril() if layer == "causal" else mask
            changed = (mask & changed).any(-1)
    return changed.nonzero()[:, 0].tolist()


def changed_by_first(layers, T, S, part, position):
    """What is changed is nothing, one position, or everything from one on."""
    first, only = (position, True) if part == "x" else (T, False)
    for layer in layers:
        if layer == "cross" and part == "memory":
            first, only = 0, False
        elif layer != "cross" and first < T:
            first, only = (0 if layer == "self" else first), False
    return [first] if only else list(range(first, T))


def leaks(layer, x):
    """Tell whether an output depends on a later input."""
    for t in range(x.shape[1] - 1):
        later = x.clone()
        later[:, t + 1 :] += 1
        if (layer(later) - layer(x))[:, t].abs().max() > 1e-5:
            return True
    return False


def layer_by_table(layer, x):
    """Every test is made, then the first that fails is looked up."""
    rng = torch.Generator().manual_seed(11)
    x = torch.randn(3, 6, x.shape[-1], generator=rng)
    same = x[:, :1].expand_as(x)
    last = torch.cat([same[:, 1:], -x[:, :1]], dim=1)
    y, rows = layer(x), layer(same)
    found = {
        2: torch.allclose(layer(last)[:, 5], rows[:, 5], atol=1e-6),
        3: bool((rows[:, 5] - rows[:, 2]).abs().max() > 1e-4),
        1: leaks(layer, x),
        4: not all(
            torch.allclose(layer(x[b : b + 1])[0], y[b], atol=1e-5) for b in range(3)
        ),
        5: torch.allclose(layer(x / 2), y / 2, atol=1e-6),
    }
    return next((n for n, failed in found.items() if failed), 0)


def layer_in_another_order(layer, x):
    rng = torch.Generator().manual_seed(3)
    x = torch.randn(2, 5, x.shape[-1], generator=rng)
    y, row = layer(x), x[:, 2:3]
    if not torch.allclose(layer(x.flip(0)).flip(0), y, atol=1e-5):
        return 4
    if not torch.allclose(layer(x[:1]), y[:1], atol=1e-5):
        return 4
    if torch.allclose(layer(5 * x), 5 * y, rtol=1e-4, atol=1e-4):
        return 5
    three = torch.cat([row, row, x[:, 4:]], dim=1)
    same = layer(row.repeat(1, 3, 1))
    if torch.allclose(layer(three)[:, 2], same[:, 2], atol=1e-5):
        return 2
    if not torch.allclose(same[:, 1], same[:, 2], atol=1e-5):
        return 3
    return int(leaks(layer, x))


def layer_with_one_position(layer, x):
    """A sequence of one position is the simplest test."""
    return layer_by_table(lambda z: layer(z[:, :1]).expand(-1, z.shape[1], -1), x)


RIGHT = {
    chapter.check_cross_attention: (
        cross_in_double,
        lambda x, m, Q, K, V: attend(x @ Q.T, F.linear(m, K), m @ V.mT),
    ),
    chapter.check_causal_self_attention: (
        causal_one_beginning_at_a_time,
        causal_by_adding_minus_infinity,
    ),
    chapter.check_changed_outputs: (changed_by_masks, changed_by_first),
    chapter.check_attention_fault: (layer_by_table, layer_in_another_order),
}
WRONG = ((chapter.check_attention_fault, "", layer_with_one_position),)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
