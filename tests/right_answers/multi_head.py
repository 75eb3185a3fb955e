"""Right answers to the exercises of chapters/06_multi_head."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from attnbook.attention.multi_head import merge_heads as merge
from attnbook.attention.multi_head import split_heads as split
from attnbook.attention.scaled_dot_product import attend
from attnbook.exercises import multi_head as checks
from right_answers import collect_answers, in_double


def split_by_loop(x, heads):
    D = x.shape[-1] // heads
    out = x.new_empty(len(x), heads, x.shape[1], D)
    for h in range(heads):
        out[:, h] = x[:, :, h * D : (h + 1) * D]
    return out


def split_through_columns(x, heads):
    B, T, C = x.shape
    return x.mT.reshape(B, heads, C // heads, T).mT


def split_by_identity(x, heads):
    C = x.shape[-1]
    pick = torch.eye(C, dtype=x.dtype).reshape(heads, C // heads, C)
    return torch.einsum("btc,hdc->bhtd", x, pick)


def split_by_chunks(x, H):
    return torch.stack(x.chunk(H, dim=-1), dim=1)


def split_by_view_and_permute(x, H):
    return x.view(*x.shape[:2], H, -1).permute(0, 2, 1, 3)


def split_made_contiguous(x, H):
    return x.reshape(len(x), -1, H, x.shape[-1] // H).swapaxes(1, 2).contiguous()


def merge_by_loop(x):
    B, H, T, D = x.shape
    out = x.new_zeros(B, T, H * D)
    for h in range(H):
        out[:, :, h * D : (h + 1) * D] += x[:, h]
    return out


def merge_by_identity(x):
    _, H, _, D = x.shape
    place = torch.eye(H * D, dtype=x.dtype).reshape(H, D, H * D)
    return torch.einsum("bhtd,hdc->btc", x, place)


def merge_by_cat(x):
    return torch.cat(x.unbind(1), dim=-1)


def merge_made_contiguous(x):
    return x.transpose(1, 2).contiguous().view(len(x), -1, x.shape[1] * x.shape[3])


def merge_by_movedim(x):
    return x.movedim(1, 2).flatten(start_dim=2)


def merge_by_hstack_of_the_turned(x):
    return torch.hstack([*x.mT.unbind(1)]).mT


def heads_by_loop(x, W_query, W_key, W_value, W_output, heads):
    D = x.shape[-1] // heads
    outputs = []
    for h in range(heads):
        rows = slice(h * D, (h + 1) * D)
        query, key = x @ W_query[rows].T, x @ W_key[rows].T
        weights = (query @ key.mT / math.sqrt(D)).softmax(-1)
        outputs.append(weights @ (x @ W_value[rows].T))
    return torch.cat(outputs, dim=-1) @ W_output.T


def heads_by_a_sum_of_blocks(x, W_query, W_key, W_value, W_output, heads):
    """Each head through its own block of the output projection, added up."""
    D = x.shape[-1] // heads
    total = torch.zeros_like(x)
    for h in range(heads):
        rows = slice(h * D, (h + 1) * D)
        looked = attend(*(x @ W[rows].T for W in (W_query, W_key, W_value)))
        total = total + looked @ W_output[:, rows].T
    return total


def heads_by_einsum(x, W_query, W_key, W_value, W_output, heads):
    query, key, value = (
        torch.einsum("btc,hdc->bhtd", x, W.unflatten(0, (heads, -1)))
        for W in (W_query, W_key, W_value)
    )
    scores = torch.einsum("bhtd,bhsd->bhts", query, key)
    weights = (scores / np.sqrt(query.shape[-1])).softmax(-1)
    looked = torch.einsum("bhts,bhsd->bthd", weights, value)
    return torch.einsum("bthd,ohd->bto", looked, W_output.unflatten(1, (heads, -1)))


def heads_in_the_batch(x, W_query, W_key, W_value, W_output, heads):
    B, T, C = x.shape
    query, key, value = (
        F.linear(x, W).view(B, T, heads, -1).transpose(1, 2).reshape(
            B * heads, T, -1
        )
        for W in (W_query, W_key, W_value)
    )  # fmt: skip
    scores = torch.bmm(query * (C // heads) ** -0.5, key.transpose(1, 2))
    looked = torch.bmm(F.softmax(scores, dim=-1), value)
    looked = looked.view(B, heads, T, -1).transpose(1, 2).contiguous()
    return F.linear(looked.view(B, T, C), W_output)


def heads_from_one_big_matrix(x, W_query, W_key, W_value, W_output, heads):
    B, T, _ = x.shape
    projected = x @ torch.cat([W_query, W_key, W_value]).T
    query, key, value = projected.view(B, T, 3, heads, -1).permute(2, 0, 3, 1, 4)
    return merge(attend(query, key, value)) @ W_output.T


def heads_from_the_exercises_before(x, Q, K, V, W, H):
    return F.linear(
        merge(attend(*(split(x @ M.T, H) for M in (Q, K, V)))),
        W,
    )


class Heads(nn.Module):
    def forward(self, x, W_query, W_key, W_value, W_output, heads):
        query, key, value = (
            split_through_columns(F.linear(x, W), heads)
            for W in (W_query, W_key, W_value)
        )
        return F.linear(merge_by_loop(attend(query, key, value)), W_output)


def grouped_by_loop(query, key, value):
    each = query.shape[1] // key.shape[1]
    return torch.stack(
        [
            attend(query[:, h], key[:, h // each], value[:, h // each])
            for h in range(query.shape[1])
        ],
        dim=1,
    )


def grouped_by_an_axis_of_groups(query, key, value):
    query = query.unflatten(1, (key.shape[1], -1))
    scores = query @ key[:, :, None].mT / math.sqrt(query.shape[-1])
    return (scores.softmax(-1) @ value[:, :, None]).flatten(1, 2)


def grouped_with_stacked_queries(query, key, value):
    B, H, T, D = query.shape
    G = key.shape[1]
    long = query.reshape(B, G, H // G * T, D)
    return attend(long, key, value).reshape(B, H, T, -1)


def grouped_by_einsum(query, key, value):
    B, H, T, D = query.shape
    query = query.reshape(B, key.shape[1], -1, T, D)
    scores = torch.einsum("bgrtd,bgsd->bgrts", query, key) * D**-0.5
    output = torch.einsum("bgrts,bgse->bgrte", scores.softmax(-1), value)
    return output.reshape(B, H, T, -1)


def grouped_by_expand(query, key, value):
    each = query.shape[1] // key.shape[1]
    key, value = (
        x[:, :, None].expand(-1, -1, each, -1, -1).flatten(1, 2) for x in (key, value)
    )
    return attend(query, key, value)


def grouped_by_chunks(query, key, value):
    parts = (
        attend(q, k, v)
        for q, k, v in zip(
            query.chunk(key.shape[1], dim=1),
            key.split(1, dim=1),
            value.split(1, dim=1),
            strict=True,
        )
    )
    return torch.cat([*parts], dim=1)


def cost_by_shapes_of_empty_tensors(C, H, G, T, S):
    """The sizes of empty tensors are counted."""
    D = C // H
    matrices = (C, H * D), (C, G * D), (C, G * D), (H * D, C)
    parameters = sum(torch.empty(*m, device="meta").numel() for m in matrices)
    weights = torch.empty(H, T, S, device="meta").numel()
    cached = torch.empty(2, G, S, D, device="meta").numel()
    return [parameters, weights, weights * D, cached]


def cost_by_heads(C, H, G, T, S):
    """Each head is counted for itself."""
    D = C // H
    own = sum(2 * C * D for _ in range(H))
    shared = sum(2 * C * D for _ in range(G))
    return [
        own + shared,
        sum(T * S for _ in range(H)),
        sum(T * S * D for _ in range(H)),
        sum(2 * S * D for _ in range(G)),
    ]


def cost_with_numpy(C, H, G, T, S):
    shared = C * G // H
    return [
        int(np.multiply(2 * C, C + shared)),
        int(np.prod([H, T, S])),
        int(np.prod([C, T, S])),
        int(np.prod([2, S, shared])),
    ]


def cost_as_tuple(C, H, G, T, S):
    return (
        C * C + C * C + 2 * C * (C // H) * G,
        S * T * H,
        H * (C // H) * S * T,
        S * (C // H) * G + S * (C // H) * G,
    )


def cost_factored(C, H, G, T, S):
    return [
        2 * C * C * (H + G) // H,
        H * T * S,
        C * T * S,
        2 * S * C * G // H,
    ]


def faulty_layers():
    """Yield each fault's number and a layer that has it, written anew."""

    def layer(number, split=None, merge=None, scale=None, share=None):
        def run(x, Q, K, V, W, H):
            C = x.shape[-1]
            query, key, value = (
                (split or split_by_loop)(x @ M.T, H) for M in (Q, K, V)
            )
            scores = query @ key.mT / (scale or math.sqrt)(C / H)
            if share == "scores":
                scores = scores.mean(1, keepdim=True)
            weights = scores.softmax(-1)
            if share == "weights":
                weights = weights.mean(1, keepdim=True)
            return (merge or merge_by_loop)(weights @ value) @ W.T

        return number, run

    yield layer(0)
    yield layer(1, split=lambda x, H: x.reshape(len(x), H, x.shape[1], -1))
    yield layer(2, merge=lambda x: x.reshape(len(x), x.shape[2], -1))
    yield layer(3, scale=lambda D: 1.0)
    yield layer(4, share="scores")
    yield layer(4, share="weights")


def fault_by_simulation(layer, x, heads):
    """Every fault is built, and the outputs are compared."""
    rng = torch.Generator().manual_seed(3)
    x = torch.randn(x.shape, generator=rng)
    C = x.shape[-1]
    matrices = [torch.randn(C, C, generator=rng) / C**0.5 for _ in range(4)]
    found = layer(x, *matrices)
    changed = torch.cat([x[:1], x[1:] + 1])
    if not torch.allclose(layer(changed, *matrices)[0], found[0], atol=1e-4):
        return 5
    for number, simulated in faulty_layers():
        if torch.allclose(simulated(x, *matrices, heads), found, atol=1e-4):
            return number
    return 3


def fault_by_gradients(layer, x, heads):
    """Autograd tells which inputs an output depends on."""
    rng = torch.Generator().manual_seed(4)
    B, T, C = x.shape
    D = C // heads
    x = torch.randn(B, T, C, generator=rng).requires_grad_()
    one, nothing = torch.eye(C), torch.zeros(C, C)

    def reached(t, column, W=nothing):
        y = layer(x, W, W, one, one)[0, t, column]
        return torch.autograd.grad(y, x)[0]

    if reached(0, 0)[1:].any():
        return 5
    first = reached(0, 0)[0]  # (T, C): equal weights on column 0
    if first[:, 1:].any() or not torch.allclose(
        first[:, 0], torch.full((T,), 1 / T), atol=1e-5
    ):
        return 1
    last = reached(0, C - 1)[0]
    if last[:, :-1].any():
        return 2
    W = torch.randn(C, C, generator=rng) / C**0.5
    same = W[:D].repeat(heads, 1)
    weights = reached(0, 0, same)  # also through the weights: compare outputs
    del weights
    with torch.no_grad():
        for number, matrix in (3, same), (4, W):
            q = split_by_loop(x @ matrix.T, heads)
            right = merge_by_loop(attend(q, q, split_by_loop(x, heads)))
            got = layer(x, matrix, matrix, one, one)
            if not torch.allclose(got, right, atol=1e-4):
                return number
    return 0


def fault_by_numbers_that_say_their_part(layer, x, heads):
    """One property after the other, on numbers that say where they are from."""
    B, T, C = x.shape
    D = C // heads
    x = torch.arange(B * T * C).reshape(B, T, C).sin()
    one, nothing = torch.eye(C), torch.zeros(C, C)
    mean = layer(x, nothing, one, one, one)
    if torch.allclose(mean[0, 0], x[:, 0].mean(0), atol=1e-5):
        return 5
    if not torch.allclose(mean[:, 0], mean[:, -1], atol=1e-5):
        return 2
    if not torch.allclose(mean[:, 0], x.mean(1), atol=1e-5):
        return 1
    part = torch.zeros(C, C)
    part[:, :D] = torch.eye(D).repeat(heads, 1)  # head h reads block 0
    keys = x[..., :D]
    weights = (keys @ keys.mT / math.sqrt(D)).softmax(-1)
    if not torch.allclose(layer(x, part, part, one, one), weights @ x, atol=1e-4):
        return 3
    part[D:] = 0  # only head 0 has scores; the others have equal weights
    got = layer(x, part, part, one, one)[..., D:]
    others = x.mean(1, keepdim=True).expand_as(x)[..., D:]
    return 0 if torch.allclose(got, others, atol=1e-4) else 4


def fault_in_double(layer, x, heads):
    """In double precision, rounding is far below every tolerance."""
    return fault_by_simulation(
        lambda x, *W: layer(x.double(), *(M.double() for M in W)).float(),
        x,
        heads,
    )


def fault_by_table(layer, x, heads):
    """All tests are made, then the first that fails is looked up."""
    C = x.shape[-1]
    x = torch.linspace(-2, 2, x.numel()).cos().reshape(x.shape)
    x = x + torch.arange(x.shape[1])[:, None] / 3
    one, nothing = torch.eye(C), torch.zeros(C, C)
    D = C // heads
    same = torch.linspace(-1, 1, D * C).sin().reshape(D, C).repeat(heads, 1)
    different = torch.linspace(-1, 1, C * C).mul(9).sin().reshape(C, C) / 2

    def differs(a, b):
        return not torch.allclose(a, b, atol=1e-4)

    def expected(W):
        q = split_through_columns(x @ W.T, heads)
        return merge_by_identity(attend(q, q, split_through_columns(x, heads)))

    uniform = layer(x, nothing, nothing, one, one)
    tests = {
        5: not differs(uniform, x.mean(0).expand_as(x)),
        2: differs(uniform, uniform[:, :1].expand_as(x)),
        1: differs(uniform, x.mean(1, keepdim=True).expand_as(x)),
        3: differs(layer(x, same, same, one, one), expected(same)),
        4: differs(layer(x, different, different, one, one), expected(different)),
    }
    return next((number for number, failed in tests.items() if failed), 0)


def copying_by_steps(model, weights):
    first, second = [h for h, w in enumerate(weights) if w > 0.9]
    if model([first, second]) > 0.6:
        return 4
    alone = model([second]) > 0.6, model([first]) > 0.6
    return {(True, False): 0, (False, True): 1, (True, True): 2}.get(alone, 3)


def copying_by_drops_of_accuracy(model, weights):
    """Compared with the accuracy of the complete model."""
    pair = sorted(np.argsort(weights)[-2:].tolist())
    drop = [model(set()) - model(gone) for gone in ([pair[0]], [pair[1]], pair)]
    fails = [d > 0.3 for d in drop]
    if not fails[2]:
        return 4
    return [2, 1, 0, 3][2 * fails[0] + fails[1]]


def copying_by_a_table_of_predictions(model, weights):
    w = torch.tensor(weights)
    first, second = (w > 0.9).nonzero().flatten().tolist()
    sets = (), (first,), (second,), (first, second)
    works = torch.tensor([model(s) for s in sets]) > 0.5
    table = torch.tensor(
        [[1, 0, 1, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]]
    )
    return int((table == works.int()).all(1).nonzero())


def copying_by_exclusion(model, weights):
    pair = {h for h, w in enumerate(weights) if w > 0.9}
    left = {0, 1, 2, 3, 4}
    first, second = min(pair), max(pair)
    left &= {0, 1, 2, 3} if model(pair) < 0.4 else {4}
    left &= {0, 3} if model({first}) < 0.4 else {1, 2, 4}
    left &= {1, 3} if model({second}) < 0.4 else {0, 2, 4}
    (explanation,) = left
    return explanation


def copying_with_all_sets(model, weights):
    """Every set of the two heads, in a dictionary."""
    a, b = (h for h in range(len(weights)) if weights[h] >= 0.9)
    copies = {
        frozenset(kept): model({a, b} - set(kept)) > 0.5
        for kept in ([], [a], [b], [a, b])
    }
    if copies[frozenset()]:
        return 4
    if copies[frozenset([a])]:
        return 2 if copies[frozenset([b])] else 0
    return 1 if copies[frozenset([b])] else 3


heads_in_double = in_double(checks.check_multi_head.solution)
heads_in_a_module = Heads()
grouped_in_double = in_double(checks.check_grouped_query.solution)
ANSWERS = collect_answers(
    vars(),
    check_split_heads="split",
    check_merge_heads="merge",
    check_multi_head="heads",
    check_grouped_query="grouped",
    check_head_cost="cost",
    check_layer_fault="fault",
    check_copying_heads="copying",
)
