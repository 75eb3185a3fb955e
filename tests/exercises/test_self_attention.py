"""The exercises on self-attention: right answers in other words, wrong ones."""

import math

import pytest
import torch
from torch.nn import functional as F

from attnbook.attention.scaled_dot_product import attend
from attnbook.exercises import self_attention as chapter


def cross_by_loops(x, memory, W_query, W_key, W_value):
    outputs = []
    for b in range(x.shape[0]):
        rows = []
        for t in range(x.shape[1]):
            query = W_query @ x[b, t]
            scores = torch.stack([query @ (W_key @ m) for m in memory[b]])
            weights = torch.softmax(scores / math.sqrt(len(query)), dim=0)
            rows.append(weights @ (memory[b] @ W_value.T))
        outputs.append(torch.stack(rows))
    return torch.stack(outputs)


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


def causal_by_positions(x, W_query, W_key, W_value):
    positions = torch.arange(x.shape[1])
    seen = positions[None, :] <= positions[:, None]
    scores = torch.einsum("btd,bsd->bts", x @ W_query.T, x @ W_key.T)
    scores = torch.where(seen, scores * W_key.shape[0] ** -0.5, -torch.inf)
    return scores.softmax(-1) @ (x @ W_value.T)


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


def changed_by_recursion(layers, T, S, part, position):
    def depends(depth, t):
        """Tell whether output t of so many layers depends on the change."""
        if not depth:
            return part == "x" and t == position
        kind = layers[depth - 1]
        if kind == "cross":
            return part == "memory" or depends(depth - 1, t)
        visible = range(t + 1) if kind == "causal" else range(T)
        return any(depends(depth - 1, s) for s in visible)

    return [t for t in range(T) if depends(len(layers), t)]


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


def layer_by_gradients(layer, x):
    """Autograd tells which inputs each output depends on."""
    rng = torch.Generator().manual_seed(7)
    x = torch.randn(2, 4, x.shape[-1], generator=rng)

    def depends(given, out):
        """Return whether output `out` depends on each position of an input."""
        leaf = given.clone().requires_grad_()
        output = layer(leaf)[out]
        upstream = torch.randn(output.shape, generator=rng)
        found = torch.autograd.grad(output, leaf, upstream)[0]
        return found.abs().amax(-1) > 1e-5

    equal = x[:, :1].expand(-1, 4, -1)
    y = layer(equal)
    if not depends(equal, (0, 3))[:, 3].any():
        return 2
    if (y[:, 1:] - y[:, :1]).abs().max() > 1e-4:
        return 3
    if any(depends(x, (b, t))[:, t + 1 :].any() for b in (0, 1) for t in (0, 2)):
        return 1
    if depends(x, (0, 3))[1].any() or depends(x, (1, 3))[0].any():
        return 4
    return 0 if (layer(3 * x) - 3 * layer(x)).abs().max() > 1e-4 else 5


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


def head_by_one_design(head, noun, other):
    """Use one sentence in which all four differ, and two controls."""
    asked = (
        (other, "vase", "thin", 2),
        ("vase", noun, "heavy", 1),
        (noun, "vase", "thin", 0),
    )
    predicted = {(8, 4, 1): 0, (1, 1, 1): 1, (3, 2, 1): 2, (4, 1, 4): 3}
    return predicted.get(tuple(head(*x) for x in asked), 4)


def head_by_effects(head, noun, other):
    """Look what changes if one thing is changed."""
    base = head(other, noun, "heavy", 0)
    thin = head(other, noun, "thin", 0)
    longer = head(other, noun, "heavy", 1)
    swapped = head(noun, other, "heavy", 0)
    missing = head(other, "vase", "heavy", 2)
    return {
        (4, 4, 4, 1, 8): 0,
        (1, 1, 1, 1, 1): 1,
        (1, 1, 2, 1, 3): 2,
        (1, 4, 1, 1, 1): 3,
    }.get((base, thin, longer, swapped, missing), 4)


def head_by_elimination(head, noun, other):
    left = {0, 1, 2, 3}
    for first, second in (noun, "cup"), ("cup", noun), ("cup", "pan"):
        for last in "heavy", "thin":
            for extra in range(4):
                seen = head(first, second, last, extra)
                word = {first: 1, second: 4}.get(noun, 6 + extra)
                meant = 1 if last == "heavy" else 4
                said = enumerate((word, 1, 1 + extra, meant))
                left -= {number for number, at in said if at != seen}
    return left.pop() if left else 4


RIGHT = {
    chapter.check_cross_attention: (
        cross_by_loops,
        cross_in_double,
        lambda x, m, Q, K, V: attend(x @ Q.T, F.linear(m, K), m @ V.mT),
    ),
    chapter.check_causal_self_attention: (
        causal_one_beginning_at_a_time,
        causal_by_adding_minus_infinity,
        causal_by_positions,
    ),
    chapter.check_changed_outputs: (
        changed_by_masks,
        changed_by_recursion,
        changed_by_first,
    ),
    chapter.check_attention_fault: (
        layer_by_gradients,
        layer_by_table,
        layer_in_another_order,
    ),
    chapter.check_head_explanation: (
        head_by_one_design,
        head_by_effects,
        head_by_elimination,
    ),
}


@pytest.mark.parametrize(
    ("check", "answer"), [(check, x) for check, every in RIGHT.items() for x in every]
)
def test_right(check, answer):
    assert check(answer, 7)


def cross(weigh):
    """Return cross-attention with weights from the scores."""
    return lambda x, m, Q, K, V: (
        weigh(x @ Q.T / len(Q) ** 0.5 @ (m @ K.T).mT) @ (m @ V.T)
    )


def causal(weigh):
    """Return self-attention with weights from the scores and a causal mask."""

    def answer(x, *matrices):
        seen = torch.ones(x.shape[1], x.shape[1]).tril().bool()
        return cross(lambda scores: weigh(scores, seen))(x, x, *matrices)

    return answer


def divide(scores, mask=None):
    """Return weights by hand, with a maximum that is never negative."""
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    e = (scores - scores.amax(-1, keepdim=True).clamp(min=0.0)).exp()
    return e / e.sum(-1, keepdim=True)


def layer_with_one_position(layer, x):
    """A sequence of one position is the simplest test."""
    return layer_by_table(lambda z: layer(z[:, :1]).expand(-1, z.shape[1], -1), x)


WRONG = (
    (chapter.check_cross_attention, cross(divide)),
    (chapter.check_causal_self_attention, causal(divide)),
    (chapter.check_changed_outputs, lambda *x: [t + 1 for t in changed_by_masks(*x)]),
    (chapter.check_attention_fault, layer_with_one_position),
    (
        chapter.check_head_explanation,
        lambda head, noun, other: head(noun, other, "heavy", 0),
    ),
)


@pytest.mark.parametrize(("check", "answer"), WRONG)
def test_wrong(check, answer):
    assert check(answer, 7).mark == "✗"


NAMED = (
    (
        chapter.check_cross_attention,
        "softmax-over-queries",
        cross(lambda s: s.mT.softmax(-1).mT),
    ),
    (
        chapter.check_causal_self_attention,
        "softmax-over-queries",
        causal(lambda s, m: torch.where(m, F.softmax(s, -2), 0.0)),
    ),
    (
        chapter.check_causal_self_attention,
        "small-sentinel",
        causal(lambda s, m: s.masked_fill(~m, -1e9).softmax(-1)),
    ),
    (
        chapter.check_causal_self_attention,
        "small-sentinel",
        causal(lambda s, m: (s - 1e9 * (1 - m.to(s))).softmax(-1)),
    ),
)


@pytest.mark.parametrize(("check", "slug", "answer"), NAMED)
def test_named(check, slug, answer):
    assert check(answer, 7).mistake == slug
