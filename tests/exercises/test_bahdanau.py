"""Answers to the exercises on additive attention, and wrong ones."""

import torch
from torch.nn import functional as F

from answers import make_tests
from attnbook.exercises import bahdanau as checks


def scores_by_loops(query, key, W_query, W_key, v):
    rows = []
    for t in range(query.shape[1]):
        hidden = (query[:, t, None] @ W_query.T + key @ W_key.T).tanh()
        rows.append((hidden * v).sum(-1))
    return torch.stack(rows, dim=1)


def scores_by_einsum(query, key, W_query, W_key, v):
    queries = torch.einsum("btd,ad->bta", query, W_query)
    keys = torch.einsum("bsd,ad->bsa", key, W_key)
    hidden = torch.tanh(queries.unsqueeze(2) + keys.unsqueeze(1))
    return torch.einsum("btsa,a->bts", hidden, v)


def scores_of_first_query(query, key, W_query, W_key, v):
    hidden = torch.tanh(query[:, :1] @ W_query.T + key @ W_key.T)
    return (hidden @ v)[:, None].expand(-1, query.shape[1], -1)


def context_by_loops(scores, value, lengths):
    contexts, weights = [], []
    for b, n in enumerate(lengths.tolist()):
        real = scores[b, :, :n].softmax(-1)
        contexts.append(real @ value[b, :n])
        weights.append(F.pad(real, (0, scores.shape[2] - n)))
    return torch.stack(contexts), torch.stack(weights)


def context_by_exponentials(scores, value, lengths):
    real = torch.arange(scores.shape[2]) < lengths[:, None, None]
    scores = torch.where(real, scores, -torch.inf)
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    weights = powers / powers.sum(-1, keepdim=True)
    return weights @ value, weights


def cost_by_counting(B, T, S, N, M, A):
    parameters = sum(x * y for x, y in ((A, N), (A, M), (A, 1)))
    once = sum(S * M * A for _ in range(B))
    return [parameters, B * (T * S) * A, once, once * T]


def cost_as_tuple(B, T, S, N, M, A):
    return A * (N + M) + A, A * S * T * B, A * M * S * B, A * M * S * B * T


def fault_by_gradients(step, state, word, memory, lengths):
    rng = torch.Generator().manual_seed(5)

    def leaf(like):
        return torch.randn(like.shape, generator=rng).requires_grad_()

    def reaches(output, given):
        upstream = torch.randn(output.shape, generator=rng)
        found = torch.autograd.grad(
            output, given, upstream, retain_graph=True, allow_unused=True
        )[0]
        return found is not None and found.abs().max() > 1e-6

    state, word, memory = leaf(state), leaf(word), leaf(memory)
    following, weights = step(state, word, memory, lengths - 2)
    if ((weights.sum(-1) - 1).abs() > 1e-4).any():
        return 1
    if (weights[:, -2:] != 0).any():
        return 2
    if reaches(weights, word):
        return 5
    if not reaches(following, memory):
        return 4
    return (
        0 if reaches(step(state, word, memory[:, :1], 0 * lengths + 1)[0], state) else 3
    )


def fault_sentence_by_sentence(step, *given):
    rows = zip(*(x.split(1) for x in given), strict=True)
    return torch.tensor(max(fault_by_gradients(step, *row) for row in rows))


RIGHT = {
    checks.check_additive_scores: (scores_by_loops, scores_by_einsum),
    checks.check_context: (context_by_loops, context_by_exponentials),
    checks.check_attention_cost: (cost_by_counting, cost_as_tuple),
    checks.check_decoder_fault: (fault_by_gradients, fault_sentence_by_sentence),
}
WRONG = ((checks.check_additive_scores, "", scores_of_first_query),)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
