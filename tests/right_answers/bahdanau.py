"""Right answers to the exercises of chapters/02_bahdanau."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import bahdanau as checks
from right_answers import in_double


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


def scores_by_concatenation(query, key, W_query, W_key, v):
    t, s = query.shape[1], key.shape[1]
    pairs = torch.cat(
        [
            query[:, :, None].expand(-1, -1, s, -1),
            key[:, None].expand(-1, t, -1, -1),
        ],
        dim=-1,
    )
    return (pairs @ torch.cat([W_query, W_key], dim=1).T).tanh() @ v


def scores_by_exponentials(query, key, W_query, W_key, v):
    x = (query @ W_query.T)[:, :, None] + (key @ W_key.T)[:, None]
    return (2 * torch.sigmoid(2 * x) - 1) @ v


def context_by_loops(scores, value, lengths):
    contexts, weights = [], []
    for b, n in enumerate(lengths.tolist()):
        real = scores[b, :, :n].softmax(-1)
        contexts.append(real @ value[b, :n])
        weights.append(F.pad(real, (0, scores.shape[2] - n)))
    return torch.stack(contexts), torch.stack(weights)


def context_by_adding(scores, value, lengths):
    places = torch.arange(scores.shape[2])
    mask = torch.zeros_like(scores)
    mask[(places >= lengths[:, None])[:, None].expand_as(scores)] = -np.inf
    weights = F.softmax(scores + mask, dim=-1)
    return torch.bmm(weights, value), weights


def context_by_hand(scores, value, lengths):
    real = (torch.arange(scores.shape[2]) < lengths[:, None])[:, None]
    scores = torch.where(real, scores, -torch.inf)
    powers = torch.exp(scores - scores.max(-1, keepdim=True).values)
    weights = powers / powers.sum(-1, keepdim=True)
    return torch.einsum("bts,bse->bte", weights, value), weights


def context_by_lowest(scores, value, lengths):
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


def state_of_reversed(states, W):
    reader = states.flip(1)[:, -1]
    return torch.tanh(reader[:, reader.shape[1] // 2 :] @ W.mT)


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


def step_from_parts(state, word, memory, lengths, W_query, W_key, v, cell):
    scores = scores_by_einsum(state[:, None], memory, W_query, W_key, v)
    looked, weights = context_by_hand(scores, memory, lengths)
    inputs = torch.cat([word, looked.squeeze(1)], dim=-1)
    return cell(inputs, state), weights.squeeze(1)


def step_in_place_of_parts(
    state, word, memory, lengths, W_query, W_key, v, cell
):
    scores = scores_by_loops(state[:, None], memory, W_query, W_key, v)
    looked, weights = context_by_adding(scores, memory, lengths)
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
    return np.array(
        [[len(a & s), len(a & p), len(a), len(s)] for a, s, p in rows]
    ).sum(0)


def rate_by_numpy(*sets):
    found, allowed, made, wanted = counts(*sets)
    return 1 - (found + allowed) / (made + wanted)


def rate_by_tensor(*sets):
    found, allowed, made, wanted = torch.tensor(counts(*sets)).double()
    return 1 - (found + allowed) / (made + wanted)


def rate_by_misses(predicted, sure, possible):
    missed = sum(len(s - a) for a, s in zip(predicted, sure, strict=True))
    wild = sum(len(a - p) for a, p in zip(predicted, possible, strict=True))
    return (missed + wild) / sum(map(len, [*predicted, *sure]))


ANSWERS = {
    "check_additive_scores": (
        ("loops", scores_by_loops),
        ("einsum", scores_by_einsum),
        ("double inside", in_double(checks.check_additive_scores.solution)),
        ("a module", Scorer()),
        ("one matrix for the pair", scores_by_concatenation),
        ("tanh from a sigmoid", scores_by_exponentials),
    ),
    "check_context": (
        ("loops over the batch", context_by_loops),
        ("a mask that is added", context_by_adding),
        ("softmax by hand", context_by_hand),
        ("double inside", in_double(checks.check_context.solution)),
        ("the lowest finite number", context_by_lowest),
        ("turned round", context_by_columns),
        ("a list", lambda *x: [*context_by_hand(*x)]),
    ),
    "check_initial_state": (
        ("chunk", lambda h, W: (h.chunk(2, -1)[1][:, 0] @ W.T).tanh()),
        ("from the reversed batch", state_of_reversed),
        (
            "unflatten",
            lambda h, W: F.linear(h.unflatten(-1, (2, -1))[:, 0, 1], W).tanh(),
        ),
        (
            "einsum",
            lambda h, W: torch.tanh(
                torch.einsum("bk,nk->bn", h[:, 0, -W.shape[1] :], W)
            ),
        ),
        (
            "a wider matrix",
            lambda h, W: (
                h[:, 0] @ torch.cat([torch.zeros_like(W), W], 1).T
            ).tanh(),
        ),
    ),
    "check_decoder_step": (
        ("row by row", step_by_rows),
        ("einsum", step_by_einsum),
        ("from the exercises before", step_from_parts),
        ("double inside", in_double(checks.check_decoder_step.solution)),
        ("a filled tensor and a list", step_in_place_of_parts),
    ),
    "check_alignment_error": (
        ("loops", rate_by_loops),
        ("one set of triples", rate_by_one_set),
        ("numpy", rate_by_numpy),
        ("a tensor", rate_by_tensor),
        ("missed and wild links", rate_by_misses),
    ),
}
