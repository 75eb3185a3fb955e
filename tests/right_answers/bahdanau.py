"""Right answers to the exercises of chapters/02_bahdanau."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import bahdanau as checks
from right_answers import collect_answers, in_double


def scores_by_loops(query, key, W_query, W_key, v):
    rows = []
    for t in range(query.shape[1]):
        row = []
        for s in range(key.shape[1]):
            hidden = query[:, t] @ W_query.T + key[:, s] @ W_key.T
            row.append((hidden.tanh() * v).sum(-1))
        rows.append(torch.stack(row, dim=-1))
    return torch.stack(rows, dim=1)


def scores_by_einsum(query, key, W_query, W_key, v):
    queries = torch.einsum("btd,ad->bta", query, W_query)
    keys = torch.einsum("bsd,ad->bsa", key, W_key)
    hidden = torch.tanh(queries.unsqueeze(2) + keys.unsqueeze(1))
    return torch.einsum("btsa,a->bts", hidden, v)


class Scorer(nn.Module):
    """Module style: the matrices are put into linear layers' places."""

    def forward(self, query, key, W_query, W_key, v):
        queries = F.linear(query, W_query)[:, :, None]
        keys = F.linear(key, W_key)[:, None]
        return F.linear(torch.tanh(queries + keys), v[None]).squeeze(-1)


def scores_by_one_matrix_for_the_pair(query, key, W_query, W_key, v):
    t, s = query.shape[1], key.shape[1]
    pairs = torch.cat(
        [
            query[:, :, None].expand(-1, -1, s, -1),
            key[:, None].expand(-1, t, -1, -1),
        ],
        dim=-1,
    )
    return (pairs @ torch.cat([W_query, W_key], dim=1).T).tanh() @ v


def scores_with_tanh_from_a_sigmoid(query, key, W_query, W_key, v):
    x = (query @ W_query.T)[:, :, None] + (key @ W_key.T)[:, None]
    return (2 * torch.sigmoid(2 * x) - 1) @ v


def context_by_loops(scores, value, lengths):
    contexts, weights = [], []
    for b, n in enumerate(lengths.tolist()):
        real = scores[b, :, :n].softmax(-1)
        contexts.append(real @ value[b, :n])
        weights.append(F.pad(real, (0, scores.shape[2] - n)))
    return torch.stack(contexts), torch.stack(weights)


def context_by_an_added_mask(scores, value, lengths):
    places = torch.arange(scores.shape[2])
    mask = torch.zeros_like(scores)
    mask[(places >= lengths[:, None])[:, None].expand_as(scores)] = -np.inf
    weights = F.softmax(scores + mask, dim=-1)
    return torch.bmm(weights, value), weights


def context_with_softmax_by_hand(scores, value, lengths):
    real = (torch.arange(scores.shape[2]) < lengths[:, None])[:, None]
    scores = torch.where(real, scores, -torch.inf)
    powers = torch.exp(scores - scores.max(-1, keepdim=True).values)
    weights = powers / powers.sum(-1, keepdim=True)
    return torch.einsum("bts,bse->bte", weights, value), weights


def context_by_the_lowest_number(scores, value, lengths):
    lowest = torch.finfo(scores.dtype).min
    real = torch.arange(scores.shape[2]) < lengths[:, None, None]
    weights = scores.masked_fill(~real, lowest).softmax(-1)
    return weights @ value, weights


def context_by_columns(scores, value, lengths):
    real = torch.ones_like(scores, dtype=torch.bool).cumsum(-1)
    real = real <= lengths.view(-1, 1, 1)
    turned = scores.masked_fill(~real, float("-inf")).mT.softmax(dim=1)
    weights = turned.mT
    return (value.mT @ turned).mT, weights


def context_as_list(*x):
    return [*context_with_softmax_by_hand(*x)]


def state_from_the_reversed_batch(states, W):
    reader = states.flip(1)[:, -1]
    return torch.tanh(reader[:, reader.shape[1] // 2 :] @ W.mT)


def state_by_chunk(h, W):
    return (h.chunk(2, -1)[1][:, 0] @ W.T).tanh()


def state_by_unflatten(h, W):
    return F.linear(h.unflatten(-1, (2, -1))[:, 0, 1], W).tanh()


def state_by_einsum(h, W):
    return torch.tanh(torch.einsum("bk,nk->bn", h[:, 0, -W.shape[1] :], W))


def state_by_a_wider_matrix(h, W):
    return (h[:, 0] @ torch.cat([torch.zeros_like(W), W], 1).T).tanh()


def step_by_rows(state, word, memory, lengths, W_query, W_key, v, cell):
    contexts, weights = [], []
    for s, m, n in zip(state, memory, lengths.tolist(), strict=True):
        scores = torch.tanh(W_query @ s + m[:n] @ W_key.T) @ v
        looks = scores.softmax(0)
        contexts.append(looks @ m[:n])
        weights.append(F.pad(looks, (0, len(m) - n)))
    inputs = torch.cat([word, torch.stack(contexts)], dim=1)
    return cell(inputs, state), torch.stack(weights)


def step_by_einsum(state, word, memory, lengths, W_query, W_key, v, cell):
    query = torch.einsum("bn,an->ba", state, W_query)
    hidden = torch.einsum("bsm,am->bsa", memory, W_key) + query[:, None]
    scores = torch.einsum("bsa,a->bs", hidden.tanh(), v)
    mask = torch.arange(memory.shape[1]) >= lengths[:, None]
    weights = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
    weights = weights.softmax(1)
    looked = torch.einsum("bs,bsm->bm", weights, memory)
    return cell(torch.hstack([word, looked]), state), weights


def step_from_the_exercises_before(
    state, word, memory, lengths, W_query, W_key, v, cell
):
    scores = scores_by_einsum(state[:, None], memory, W_query, W_key, v)
    looked, weights = context_with_softmax_by_hand(scores, memory, lengths)
    inputs = torch.cat([word, looked.squeeze(1)], dim=-1)
    return cell(inputs, state), weights.squeeze(1)


def step_in_a_filled_tensor(state, word, memory, lengths, W_query, W_key, v, cell):
    scores = scores_by_loops(state[:, None], memory, W_query, W_key, v)
    looked, weights = context_by_an_added_mask(scores, memory, lengths)
    inputs = word.new_empty(len(word), word.shape[1] + memory.shape[2])
    inputs[:, : word.shape[1]] = word
    inputs[:, word.shape[1] :] = looked[:, 0]
    return [cell(inputs, state), weights[:, 0]]


def rate_by_loops(predicted, sure, possible):
    hits = total = 0
    for a, s, p in zip(predicted, sure, possible, strict=True):
        for link in a:
            hits += (link in s) + (link in p)
        total += len(a) + len(s)
    return (total - hits) / total


def rate_by_one_set(predicted, sure, possible):
    def whole(sets):
        return {(i, *link) for i, links in enumerate(sets) for link in links}

    a, s, p = whole(predicted), whole(sure), whole(possible)
    return 1.0 - (len(a & s) + len(a & p)) / (len(a) + len(s))


def counts(predicted, sure, possible):
    rows = zip(predicted, sure, possible, strict=True)
    return np.array([[len(a & s), len(a & p), len(a), len(s)] for a, s, p in rows]).sum(
        0
    )


def rate_by_numpy(*sets):
    found, allowed, made, wanted = counts(*sets)
    return 1 - (found + allowed) / (made + wanted)


def rate_by_tensor(*sets):
    found, allowed, made, wanted = torch.tensor(counts(*sets)).double()
    return 1 - (found + allowed) / (made + wanted)


def rate_by_missed_and_wild_links(predicted, sure, possible):
    missed = sum(len(s - a) for a, s in zip(predicted, sure, strict=True))
    wild = sum(len(a - p) for a, p in zip(predicted, possible, strict=True))
    return (missed + wild) / sum(map(len, [*predicted, *sure]))


def cost_by_counting(B, T, S, N, M, A):
    parameters = sum(x * y for x, y in ((A, N), (A, M), (A, 1)))
    once = sum(S * M * A for _ in range(B))
    return [parameters, B * (T * S) * A, once, once * T]


def cost_by_shapes_of_empty_tensors(B, T, S, N, M, A):
    weights = [torch.empty(A, N), torch.empty(A, M), torch.empty(A)]
    hidden = torch.empty(B, T, 1, A, device="meta")
    hidden = hidden + torch.empty(B, 1, S, A, device="meta")
    keys = B * S * M * weights[1].shape[0]
    return [sum(w.numel() for w in weights), hidden.numel(), keys, T * keys]


def cost_with_numpy(B, T, S, N, M, A):
    once = int(np.prod([B, S, M, A]))
    return [A * (N + M) + A, int(np.prod([B, T, S, A])), once, once * T]


def cost_as_tuple(B, T, S, N, M, A):
    return (
        A * N + A * M + A,
        A * S * T * B,
        A * M * S * B,
        A * M * S * B * T,
    )


def cost_factored(B, T, S, N, M, A):
    return [A * x for x in (N + M + 1, B * T * S, B * S * M, T * B * S * M)]


def fault_by_gradients(step, state, word, memory, lengths):
    """Autograd tells what each output depends on."""
    rng = torch.Generator().manual_seed(5)

    def leaf(like):
        return torch.randn(like.shape, generator=rng).requires_grad_()

    state, word, memory = leaf(state), leaf(word), leaf(memory)
    following, weights = step(state, word, memory, lengths - 2)
    if ((weights.sum(-1) - 1).abs() > 1e-4).any():
        return 1
    if (weights[:, -2:] != 0).any():
        return 2
    upstream = torch.randn(weights.shape, generator=rng)
    given = {"retain_graph": True, "allow_unused": True}
    by_word = torch.autograd.grad(weights, word, upstream, **given)[0]
    if by_word is not None and by_word.any():
        return 5
    upstream = torch.randn(following.shape, generator=rng)
    by_memory = torch.autograd.grad(following, memory, upstream, **given)[0]
    if by_memory is None or not by_memory.any():
        return 4
    following, _ = step(state, word, memory[:, :1], lengths * 0 + 1)
    by_state = torch.autograd.grad(following, state, upstream, **given)[0]
    return 3 if by_state is None or by_state.abs().max() < 1e-6 else 0


def fault_by_equal_encoder_states(step, state, word, memory, lengths):
    """With equal encoder states, every weighting gives the same context."""
    other = torch.linspace(-1, 1, state.numel()).reshape(state.shape)
    content = torch.linspace(-2, 2, memory.numel()).reshape(memory.shape)
    short = torch.full_like(lengths, 2)
    after, weights = step(other, word, content, short)
    if not torch.allclose(weights.sum(1), torch.ones(()), atol=1e-4):
        return 1
    if weights[:, 2:].abs().sum() > 1e-6:
        return 2
    same = content[:, :1].expand_as(content)
    pair = [step(x, word, same, lengths)[0] for x in (other, other - 1)]
    if torch.allclose(*pair, atol=1e-5):
        return 3
    if torch.allclose(after, step(other, word, -content, short)[0], atol=1e-5):
        return 4
    moved = step(other, word - 2, content, short)[1]
    return 0 if torch.allclose(moved, weights, atol=1e-5) else 5


def fault_by_table(step, state, word, memory, lengths):
    """Every test is made, then the first that fails is looked up."""
    s = torch.ones_like(state)
    m = torch.arange(memory.numel()).reshape(memory.shape).sin()
    n = lengths - 1
    after, w = step(s, word, m, n)
    tests = [
        abs(float(w.sum()) - len(w)) > 1e-3
        or bool(((w.sum(-1) - 1).abs() > 1e-4).any()),
        float(w[:, -1].abs().max()) > 1e-7,
        torch.allclose(
            step(s, word, m[:, :1], n * 0 + 1)[0],
            step(-s, word, m[:, :1], n * 0 + 1)[0],
            atol=1e-6,
        ),
        torch.allclose(after, step(s, word, m * 2, n)[0], atol=1e-6),
        not torch.allclose(w, step(s, -word + 1, m, n)[1], atol=1e-6),
    ]
    return (tests.index(True) + 1) if any(tests) else 0


def fault_in_double(step, state, word, memory, lengths):
    return int(fault_by_equal_encoder_states(step, state, word, memory, lengths))


def fault_sentence_by_sentence(step, state, word, memory, lengths):
    found = [
        fault_by_gradients(
            step, *(x[i : i + 1] for x in (state, word, memory, lengths))
        )
        for i in range(len(state))
    ]
    return max(found)


def run_experiment(words, slots, model, S):
    predictions = {
        0: list(range(S)),
        1: [slots.index(t) for t in range(S)],
        2: [slots.index(words.index(t)) for t in range(S)],
    }
    found = [model(words, slots, t) for t in range(S)]
    return next((k for k, v in predictions.items() if v == found), 3)


def experiment_in_two_parts(model, S):
    """First move the states, then the words."""
    order, moved = list(range(S)), [*range(1, S), 0]
    states = [model(order, moved, t) for t in range(S)]
    words = [model(moved, order, t) for t in range(S)]
    if states == order and words == order:
        return 0
    if states != [moved.index(t) for t in order]:
        return 3
    if words == order:
        return 1
    return 2 if words == [moved.index(t) for t in order] else 3


def experiment_with_tensors(model, S):
    order = torch.roll(torch.arange(S), 1)
    return run_experiment(order.tolist(), order.tolist(), model, S)


def experiment_rotated_the_other_way(model, S):
    return run_experiment([S - 1, *range(S - 1)], [S - 1, *range(S - 1)], model, S)


def experiment_for_each_pair(model, S):
    return (
        run_experiment([*range(1, S), 0], [*range(1, S), 0], model, S)
        if experiment_in_two_parts(model, S) != 3
        else 3
    )


def experiment_with_tuples(model, S):
    return run_experiment(
        *([[*range(1, S), 0]] * 2),
        lambda words, slots, t: model(tuple(words), tuple(slots), t),
        S,
    )


scores_in_double = in_double(checks.check_additive_scores.solution)
scores_in_a_module = Scorer()
context_in_double = in_double(checks.check_context.solution)
step_in_double = in_double(checks.check_decoder_step.solution)
ANSWERS = collect_answers(
    vars(),
    check_additive_scores="scores",
    check_context="context",
    check_initial_state="state",
    check_decoder_step="step",
    check_alignment_error="rate",
    check_attention_cost="cost",
    check_decoder_fault="fault",
    check_alignment_explanation="experiment",
)
