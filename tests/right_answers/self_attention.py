"""Right answers to the exercises of chapters/05_self_attention."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from attnbook.attention.scaled_dot_product import attend
from right_answers import collect_answers


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


def cross_by_einsum(x, memory, W_query, W_key, W_value):
    query = torch.einsum("btc,dc->btd", x, W_query)
    key = torch.einsum("bsm,dm->bsd", memory, W_key)
    value = torch.einsum("bsm,em->bse", memory, W_value)
    scores = torch.einsum("btd,bsd->bts", query, key) / np.sqrt(key.shape[-1])
    return torch.einsum("bts,bse->bte", scores.softmax(-1), value)


def cross_in_double(x, memory, W_query, W_key, W_value):
    wide = (z.double() for z in (x, memory, W_query, W_key, W_value))
    return cross_by_einsum(*wide).to(x.dtype)


def cross_with_softmax_by_hand(x, memory, W_query, W_key, W_value):
    query, key = F.linear(x, W_query), F.linear(memory, W_key)
    scores = torch.bmm(query * query.shape[-1] ** -0.5, key.transpose(1, 2))
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return (powers / powers.sum(-1, keepdim=True)) @ F.linear(memory, W_value)


def cross_by_reference(x, memory, W_query, W_key, W_value):
    return attend(x @ W_query.T, memory @ W_key.T, memory @ W_value.T)


class Crossing(nn.Module):
    """Module style, and the matrices put into linear layers' places."""

    def forward(self, x, memory, W_query, W_key, W_value):
        query, key, value = (
            F.linear(z, W)
            for z, W in ((x, W_query), (memory, W_key), (memory, W_value))
        )
        scores = torch.matmul(query, key.permute(0, 2, 1))
        return torch.matmul(F.softmax(scores / key.size(-1) ** 0.5, 2), value)


def selfish(cross):
    return lambda x, *matrices: cross(x, x, *matrices)


def self_with_one_product(x, W_query, W_key, W_value):
    D, E = W_query.shape[0], W_value.shape[0]
    every = x @ torch.cat([W_query, W_key, W_value]).T
    query, key, value = every.split([D, D, E], dim=-1)
    return (query @ key.mT * D**-0.5).softmax(-1) @ value


def causal_one_beginning_at_a_time(x, W_query, W_key, W_value):
    rows = [
        self_with_one_product(x[:, : t + 1], W_query, W_key, W_value)[:, -1]
        for t in range(x.shape[1])
    ]
    return torch.stack(rows, dim=1)


def causal_by_adding_minus_infinity(x, W_query, W_key, W_value):
    T = x.size(1)
    hidden = torch.full((T, T), float("-inf"), dtype=x.dtype).triu(1)
    scores = (x @ W_query.T) @ (x @ W_key.T).mT / W_query.size(0) ** 0.5
    return torch.softmax(scores + hidden, dim=-1) @ (x @ W_value.T)


def causal_by_places(x, W_query, W_key, W_value):
    places = torch.arange(x.shape[1])
    seen = places[None, :] <= places[:, None]
    scores = torch.einsum("btd,bsd->bts", x @ W_query.T, x @ W_key.T)
    scores = torch.where(seen, scores * W_key.shape[0] ** -0.5, -torch.inf)
    return scores.softmax(-1) @ (x @ W_value.T)


def causal_by_powers_in_double(x, W_query, W_key, W_value):
    scores = (x @ W_query.T) @ (x @ W_key.T).mT * W_query.shape[0] ** -0.5
    seen = torch.ones_like(scores).tril()
    # The largest *visible* score is subtracted, in double precision.
    wide = scores.double().masked_fill(seen == 0, -torch.inf)
    powers = (wide - wide.amax(-1, keepdim=True)).exp()
    weights = powers / powers.sum(-1, keepdim=True)
    return (weights @ (x @ W_value.T).double()).to(x.dtype)


def causal_read_from_the_end(x, W_query, W_key, W_value):
    turned = x.flip(1)
    query, key, value = (turned @ W.T for W in (W_query, W_key, W_value))
    seen = torch.ones(x.shape[1], x.shape[1]).triu().bool()
    scores = (query @ key.mT / key.shape[-1] ** 0.5).masked_fill(~seen, -torch.inf)
    return (scores.softmax(-1) @ value).flip(1)


def changed_by_masks(layers, T, S, part, position):
    """One Boolean row for x, multiplied by the mask of each layer."""
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


def changed_by_running_twice(layers, T, S, part, position):
    """Random layers are run twice, and their outputs compared."""
    rng = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(shape, generator=rng, dtype=torch.float64)

    x, memory, W = draw(T, 4), draw(S, 4), draw(len(layers), 3, 4, 4)

    def run(x, memory):
        for layer, (query, key, value) in zip(layers, W, strict=True):
            source = memory if layer == "cross" else x
            scores = (x @ query) @ (source @ key).T / 8
            if layer == "causal":
                hidden = torch.ones(T, T).triu(1).bool()
                scores = scores.masked_fill(hidden, -torch.inf)
            x = scores.softmax(-1) @ (source @ value)
            x = x / x.norm(dim=-1, keepdim=True)
        return x

    before = run(x, memory)
    other = {"x": x.clone(), "memory": memory.clone()}
    other[part][position] = draw(4)
    moved = (run(**other) - before).abs().amax(-1) > 1e-12
    return [t for t in range(T) if moved[t]]


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
        if layer == "cross":
            if part == "memory":
                first, only = 0, False
        elif first < T:
            first, only = (0 if layer == "self" else first), False
    return [first] if only else list(range(first, T))


def changed_with_sets(layers, T, S, part, position):
    everything, found = {*range(T)}, {position} if part == "x" else {*()}
    for layer in layers:
        match layer, part:
            case "cross", "memory":
                found = everything
            case "self", _:
                found = everything if found else found
            case "causal", _:
                found = {t for t in range(T) if any(s <= t for s in found)}
    return sorted(found)


def layer_fault_by_gradients(layer, x):
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


def leaks(layer, x):
    """Tell whether an output depends on a later input."""
    for t in range(x.shape[1] - 1):
        later = x.clone()
        later[:, t + 1 :] += 1
        if (layer(later) - layer(x))[:, t].abs().max() > 1e-5:
            return True
    return False


def layer_fault_by_prefixes(layer, x):
    """Prefixes alone, and sequences alone."""
    C = x.shape[-1]
    ramp = torch.linspace(-2, 2, 5 * C).sin().reshape(1, 5, C)
    constant = ramp[:, :1].repeat(1, 5, 1)
    moved = constant.clone()
    moved[:, 4] = ramp[:, 3]
    if (layer(moved) - layer(constant))[0, 4].abs().max() < 1e-5:
        return 2
    if layer(constant)[0].std(dim=0).max() > 1e-4:
        return 3
    for n in range(1, 5):
        if (layer(ramp[:, :n]) - layer(ramp)[:, :n]).abs().max() > 1e-4:
            return 1
    three = torch.cat([ramp, ramp.flip(1), -ramp])
    for one, output in zip(three, layer(three), strict=True):
        if (output - layer(one[None])[0]).abs().max() > 1e-4:
            return 4
    linear = torch.allclose(layer(3 * ramp), 3 * layer(ramp), atol=1e-5)
    return 5 if linear else 0


def layer_fault_by_table(layer, x):
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


def layer_fault_from_width_alone(layer, x):
    return int(layer_fault_by_table(layer, torch.ones(1, 1, x.shape[-1])))


def layer_fault_tests_in_another_order(layer, x):
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


def head_explained_by_one_design(head, noun, other):
    """One sentence in which all four differ, and two controls."""
    asked = (
        (other, "vase", "thin", 2),
        ("vase", noun, "heavy", 1),
        (noun, "vase", "thin", 0),
    )
    predicted = {
        (8, 4, 1): 0,
        (1, 1, 1): 1,
        (3, 2, 1): 2,
        (4, 1, 4): 3,
    }
    return predicted.get(tuple(head(*x) for x in asked), 4)


def head_explained_by_effects(head, noun, other):
    """What changes if one thing is changed."""
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


def head_explained_by_elimination(head, noun, other):
    left = {0, 1, 2, 3}
    for first, second in (noun, "cup"), ("cup", noun), ("cup", "pan"):
        for last in "heavy", "thin":
            for extra in range(4):
                seen = head(first, second, last, extra)
                word = {first: 1, second: 4}.get(noun, 6 + extra)
                meant = 1 if last == "heavy" else 4
                left -= {
                    number
                    for number, said in enumerate((word, 1, 1 + extra, meant))
                    if said != seen
                }
    return left.pop() if left else 4


def head_explained_by_words(head, noun, other):
    """Words instead of positions are compared."""

    def attended(first, second, last, extra):
        words = ["the", first, "broke", "the", second, "because"]
        words += ["then"] * extra + ["it", "was", last]
        return words[head(first, second, last, extra)]

    seen = [
        attended("pot", noun, "thin", 2),
        attended(noun, "pot", "thin", 2),
        attended("pot", "jug", "heavy", 2),
        attended("pot", "jug", "thin", 0),
    ]
    table = (
        [noun, noun, "it", "it"],
        ["pot", noun, "pot", "pot"],
        ["the", "the", "the", "pot"],
        [noun, "pot", "pot", "jug"],
    )
    return table.index(seen) if seen in table else 4


def head_explained_by_arrays(head, noun, other):
    sentences = [
        (*nouns, last, extra)
        for nouns in ((noun, "a"), ("a", noun), ("a", "b"))
        for last in ("heavy", "thin")
        for extra in (0, 2, 5)
    ]
    it = [6 + s[3] for s in sentences]
    found = np.array([head(*s) for s in sentences])
    stone = [
        1 if s[0] == noun else 4 if s[1] == noun else place
        for s, place in zip(sentences, it, strict=True)
    ]
    meant = [1 if s[2] == "heavy" else 4 for s in sentences]
    for number, said in enumerate((stone, 1, np.array(it) - 5, meant)):
        if (found == np.array(said)).all():
            return number
    return 4


cross_in_a_module = Crossing()
ANSWERS = collect_answers(
    vars(),
    check_self_attention="self",
    check_cross_attention="cross",
    check_causal_self_attention="causal",
    check_changed_outputs="changed",
    check_attention_fault="layer_fault",
    check_head_explanation="head_explained",
)
ANSWERS["check_self_attention"] += [
    (words, selfish(cross)) for words, cross in ANSWERS["check_cross_attention"]
]
