"""Answers to the exercises on multi-head attention, and wrong ones."""

import math

import torch

from answers import make_tests
from attnbook.attention.scaled_dot_product import attend
from attnbook.exercises import multi_head as checks


def heads_by_loop(x, W_query, W_key, W_value, W_output, heads):
    outputs = []
    for Q, K, V in zip(
        W_query.chunk(heads), W_key.chunk(heads), W_value.chunk(heads), strict=True
    ):
        query, key = x @ Q.T, x @ K.T
        weights = (query @ key.mT / math.sqrt(query.shape[-1])).softmax(-1)
        outputs.append(weights @ (x @ V.T))
    return torch.cat(outputs, dim=-1) @ W_output.T


def heads_by_einsum(x, W_query, W_key, W_value, W_output, heads):
    query, key, value = (
        torch.einsum("btc,hdc->bhtd", x, W.unflatten(0, (heads, -1)))
        for W in (W_query, W_key, W_value)
    )
    scores = torch.einsum("bhtd,bhsd->bhts", query, key) * query.shape[-1] ** -0.5
    weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()
    blocks = W_output.unflatten(1, (heads, -1))
    return torch.einsum("bhts,bhsd,ohd->bto", weights, value, blocks)


def grouped_by_loop(query, key, value):
    each = query.shape[1] // key.shape[1]
    outputs = [
        attend(query[:, h], key[:, h // each], value[:, h // each])
        for h in range(query.shape[1])
    ]
    return torch.stack(outputs, dim=1)


def grouped_with_stacked_queries(query, key, value):
    B, H, T, D = query.shape
    long = query.reshape(B, key.shape[1], -1, D)
    return attend(long, key, value).reshape(B, H, T, -1)


def grouped_with_the_next_group(query, key, value):
    return grouped_by_loop(query, key.roll(-1, 1), value.roll(-1, 1))


def cost_by_shapes(C, H, G, T, S):
    D = C // H
    matrices = (C, H * D), (C, G * D), (C, G * D), (H * D, C)
    parameters = sum(torch.empty(*m, device="meta").numel() for m in matrices)
    weights = torch.empty(H, T, S, device="meta").numel()
    return [parameters, weights, weights * D, 2 * S * G * D]


def cost_factored(C, H, G, T, S):
    return [2 * C * C * (H + G) // H, H * T * S, C * T * S, 2 * S * C * G // H]


def copying_by_steps(model, weights):
    first, second = [h for h, w in enumerate(weights) if w > 0.9]
    if model([first, second]) > 0.6:
        return 4
    alone = model([second]) > 0.6, model([first]) > 0.6
    return {(True, False): 0, (False, True): 1, (True, True): 2}.get(alone, 3)


def copying_by_drops_of_accuracy(model, weights):
    pair = sorted(torch.tensor(weights).topk(2).indices.tolist())
    drops = [model(set()) - model(gone) for gone in ([pair[0]], [pair[1]], pair)]
    first, second, both = (drop > 0.3 for drop in drops)
    return [2, 1, 0, 3][2 * first + second] if both else 4


def copying_of_the_first_two(model, weights):
    return copying_by_steps(model, [1.0, 1.0, *[0.0] * (len(weights) - 2)])


RIGHT = {
    checks.check_multi_head: (heads_by_loop, heads_by_einsum),
    checks.check_grouped_query: (grouped_by_loop, grouped_with_stacked_queries),
    checks.check_head_cost: (cost_by_shapes, cost_factored),
    checks.check_copying_heads: (copying_by_steps, copying_by_drops_of_accuracy),
}
WRONG = (
    (checks.check_grouped_query, "", grouped_with_the_next_group),
    (checks.check_copying_heads, "", copying_of_the_first_two),
)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
