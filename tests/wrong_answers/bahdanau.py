"""Wrong answers to the exercises of chapters/02_bahdanau."""

import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import bahdanau as checks
from wrong_answers import Wrong
from wrong_answers.common import detached, single, usual

SDPA = F.scaled_dot_product_attention


def relu_scores(query, key, W_query, W_key, v):
    hidden = F.relu(
        F.linear(query, W_query).unsqueeze(2)
        + F.linear(key, W_key).unsqueeze(1)
    )
    return torch.einsum("btsa,a->bts", hidden, v)


def zipped_scores(query, key, W_query, W_key, v):
    hidden = torch.tanh(query @ W_query.T + key @ W_key.T)
    return (hidden @ v)[:, None].expand(-1, query.shape[1], -1)


def scores_of_first_query(query, key, W_query, W_key, v):
    hidden = torch.tanh(query[:, :1] @ W_query.T + key @ W_key.T)
    return (hidden @ v)[:, None].expand(-1, query.shape[1], -1)


def untransposed(query, key, W_query, W_key, v):
    hidden = torch.tanh((query @ W_query)[:, :, None] + (key @ W_key)[:, None])
    return hidden @ v


def transposed_by_reshape(query, key, W_query, W_key, v):
    queries, keys = query @ W_query.T, key @ W_key.T
    hidden = torch.tanh(queries[:, None] + keys[:, :, None]) @ v
    return hidden.reshape(len(query), query.shape[1], key.shape[1])


def first_of_batch(query, key, W_query, W_key, v):
    keys = key[:1] @ W_key.T
    return torch.tanh((query @ W_query.T)[:, :, None] + keys[:, None]) @ v


def keeps_an_axis(query, key, W_query, W_key, v):
    hidden = torch.tanh(
        (query @ W_query.T)[:, :, None] + (key @ W_key.T)[:, None]
    )
    return hidden @ v[:, None]


def concatenated(query, key, W_query, W_key, v):
    pairs = torch.cat(
        [
            (query @ W_query.T)[:, :, None].expand(-1, -1, key.shape[1], -1),
            (key @ W_key.T)[:, None].expand(-1, query.shape[1], -1, -1),
        ],
        dim=-1,
    )
    return torch.tanh(pairs) @ torch.cat([v, v])


def without_graph(query, key, W_query, W_key, v):
    with torch.no_grad():
        queries, keys = query @ W_query.T, key @ W_key.T
    return torch.tanh(queries[:, :, None] + keys[:, None]) @ v


def key_detached(query, key, W_query, W_key, v):
    keys = key.detach() @ W_key.T
    return torch.tanh((query @ W_query.T)[:, :, None] + keys[:, None]) @ v


def places(scores):
    return torch.arange(scores.shape[-1], device=scores.device)


def unmasked(scores, value, lengths):
    weights = F.softmax(scores, dim=2)
    return torch.bmm(weights, value), weights


def softmax_of_queries(scores, value, lengths):
    real = places(scores) < lengths[:, None, None]
    weights = torch.softmax(scores.masked_fill(~real, -torch.inf), dim=1)
    weights = torch.where(real, weights, 0.0)
    return weights @ value, weights


def legacy_softmax_axis(scores, value, lengths):
    real = places(scores) < lengths[:, None, None]
    weights = torch.softmax(scores.masked_fill(~real, -torch.inf), dim=0)
    weights = torch.where(real, weights, 0.0)
    return weights @ value, weights


def mask_times_weights(scores, value, lengths):
    weights = scores.softmax(-1).clone()
    for b, n in enumerate(lengths.tolist()):
        weights[b, :, n:] = 0
    return weights @ value, weights


def inclusive_mask(scores, value, lengths):
    real = places(scores) <= lengths[:, None, None]
    weights = scores.masked_fill(~real, -torch.inf).softmax(-1)
    return weights @ value, weights


def additive_mask(scores, value, lengths):
    real = places(scores) < lengths[:, None, None]
    weights = (scores + real.logical_not() * -1e9).softmax(-1)
    return weights @ value, weights


def tiny_sentinel(scores, value, lengths):
    real = places(scores) < lengths[:, None, None]
    weights = scores.masked_fill(~real, -10.0).softmax(-1)
    return weights @ value, weights


def query_mask(scores, value, lengths):
    steps = torch.arange(scores.shape[1])
    real = steps[:, None] < lengths[:, None, None]
    weights = torch.where(real, scores.softmax(-1), 0.0)
    return weights @ value, weights


def flat_lengths(scores, value, lengths):
    real = places(scores) < lengths.max()
    weights = scores.masked_fill(~real, -torch.inf).softmax(-1)
    return weights @ value, weights


def value_for_context(scores, value, lengths):
    real = places(scores) < lengths[:, None, None]
    weights = scores.masked_fill(~real, -torch.inf).softmax(-1)
    return value, weights


def scores_for_weights(scores, value, lengths):
    real = places(scores) < lengths[:, None, None]
    weights = scores.masked_fill(~real, -torch.inf).softmax(-1)
    return weights @ value, scores


def swapped_outputs(scores, value, lengths):
    context, weights = checks.check_context.solution(scores, value, lengths)
    return weights, context


def weights_detached(scores, value, lengths):
    _, weights = checks.check_context.solution(scores, value, lengths)
    return weights.detach() @ value, weights


def masked_in_place(scores, value, lengths):
    real = places(scores) < lengths[:, None, None]
    weights = scores.masked_fill_(~real, -torch.inf).softmax(-1)
    return weights @ value, weights


def renormalised_with_slack(scores, value, lengths):
    real = places(scores) < lengths[:, None, None]
    weights = scores.softmax(-1) * real
    weights = weights / (weights.sum(-1, keepdim=True) + 1e-3)
    return weights @ value, weights


def first_half(states, W):
    forward, _ = states.chunk(2, dim=-1)
    return torch.tanh(F.linear(forward[:, 0], W))


def last_of_backward(states, W):
    _, backward = states.chunk(2, dim=-1)
    return torch.tanh(F.linear(backward[:, -1], W))


def last_of_forward(states, W):
    forward, _ = states.chunk(2, dim=-1)
    return torch.tanh(F.linear(forward[:, -1], W))


def both_summed(states, W):
    forward, backward = states.chunk(2, dim=-1)
    return torch.tanh((forward[:, -1] + backward[:, 0]) @ W.T)


def batch_for_time(states, W):
    return torch.tanh(states[0, :, W.shape[1] :] @ W.T)


def looked_back(state, memory, lengths, W_query, W_key, v):
    query = F.linear(state, W_query).unsqueeze(1)
    scores = torch.tanh(query + F.linear(memory, W_key)) @ v
    real = torch.arange(memory.shape[1]) < lengths.unsqueeze(1)
    weights = scores.masked_fill(~real, -torch.inf).softmax(1)
    return (weights.unsqueeze(2) * memory).sum(1), weights


def no_state(state, word, memory, lengths, W_query, W_key, v, cell):
    seen, weights = looked_back(state, memory, lengths, W_query, W_key, v)
    start = torch.zeros(len(state), state.shape[1], dtype=state.dtype)
    return cell(torch.cat([word, seen], dim=1), start), weights


def luong_order(state, word, memory, lengths, W_query, W_key, v, cell):
    blank = torch.zeros(len(word), memory.shape[2], dtype=word.dtype)
    state = cell(torch.cat([word, blank], dim=1), state)
    _, weights = looked_back(state, memory, lengths, W_query, W_key, v)
    return state, weights


def wrong_way_round(state, word, memory, lengths, W_query, W_key, v, cell):
    seen, weights = looked_back(state, memory, lengths, W_query, W_key, v)
    return cell(torch.cat([seen, word], dim=1), state), weights


def all_of_it(state, word, memory, lengths, W_query, W_key, v, cell):
    every = torch.full_like(lengths, memory.shape[1])
    seen, weights = looked_back(state, memory, every, W_query, W_key, v)
    return cell(torch.cat([word, seen], dim=1), state), weights


def state_and_context(state, word, memory, lengths, W_query, W_key, v, cell):
    seen, _ = looked_back(state, memory, lengths, W_query, W_key, v)
    return cell(torch.cat([word, seen], dim=1), state), seen


def context_detached(state, word, memory, lengths, W_query, W_key, v, cell):
    seen, weights = looked_back(state, memory, lengths, W_query, W_key, v)
    return cell(torch.cat([word, seen.detach()], dim=1), state), weights


def with_an_axis(*inputs):
    state, weights = checks.check_decoder_step.solution(*inputs)
    return state, weights[:, None]


def best_place_only(state, word, memory, lengths, W_query, W_key, v, cell):
    _, weights = looked_back(state, memory, lengths, W_query, W_key, v)
    seen = memory[torch.arange(len(memory)), weights.argmax(1)]
    return cell(torch.cat([word, seen], dim=1), state), weights


def ratio(predicted, sure, possible, *, weigh):
    counts = [0, 0, 0, 0]
    for a, s, p in zip(predicted, sure, possible, strict=True):
        for i, n in enumerate((len(a & s), len(a & p), len(a), len(s))):
            counts[i] += n
    return weigh(*counts)


def averaged(predicted, sure, possible):
    total = 0.0
    for a, s, p in zip(predicted, sure, possible, strict=True):
        total += 1 - (len(a & s) + len(a & p)) / (len(a) + len(s))
    return total / len(predicted)


def with_possible_below(predicted, sure, possible):
    return ratio(
        predicted,
        sure,
        possible,
        weigh=lambda s, p, a, n: (
            1 - (s + p) / (a + sum(len(x) for x in possible))
        ),
    )


def only_newly_possible(predicted, sure, possible):
    return ratio(
        predicted,
        sure,
        [p - s for s, p in zip(sure, possible, strict=True)],
        weigh=lambda s, p, a, n: 1 - (s + p) / (a + n),
    )


def turned_links(predicted, sure, possible):
    turned = [{(s, t) for t, s in a} for a in predicted]
    return checks.check_alignment_error.solution(turned, sure, possible)


ANSWERS = {
    "check_additive_scores": (
        *usual(checks.check_additive_scores),
        detached(checks.check_additive_scores.solution),
        single(checks.check_additive_scores.solution),
        Wrong(
            "relu-for-tanh",
            'keon/seq2seq PR 31: "Bahdanau" with relu',
            "the shape",
            relu_scores,
        ),
        Wrong(
            "error",
            "the new axis is forgotten, and T = S in the toy example",
            "the shape, where T = S",
            zipped_scores,
        ),
        Wrong(
            "numbers",
            "one decoder step is all that a decoder ever sees at a time",
            "T = 1, which a decoder uses",
            scores_of_first_query,
        ),
        Wrong(
            "error",
            "the paper writes W s, a column; rows need x @ W.T",
            "nothing, unless the widths agree",
            untransposed,
        ),
        Wrong(
            "numbers",
            "a reshape to silence an error about shapes",
            "the shape",
            transposed_by_reshape,
        ),
        Wrong(
            "numbers",
            "tried on a batch of one",
            "a batch of one",
            first_of_batch,
        ),
        Wrong(
            "shape",
            "v is made a column, as in nn.Linear(A, 1)",
            "every number",
            keeps_an_axis,
        ),
        Wrong(
            "tanh-too-early",
            "concat is taken for the additive score (Luong 2015 has one)",
            "the shape",
            concatenated,
        ),
        Wrong(
            "detached",
            "the projections are made once, without a graph, to save time",
            "every number forwards",
            without_graph,
        ),
        Wrong(
            "detached",
            "the encoder is frozen by cutting its states off",
            "every number, and most gradients",
            key_detached,
        ),
        Wrong(
            "ready-made",
            "attention is one call in PyTorch",
            "that something attends",
            lambda q, k, W, U, v: SDPA(q @ W.T, k @ U.T, k @ U.T),
        ),
        Wrong(
            "ready-made",
            "attention is one module in PyTorch",
            "that something attends",
            lambda q, k, W, U, v: nn.MultiheadAttention(
                len(v), 1, batch_first=True
            )(q @ W.T, k @ U.T, k @ U.T)[1],
        ),
        Wrong(
            "nan",
            "a mean over an axis that is empty",
            "the shape",
            lambda q, k, *x: q.new_full(
                (len(q), q.shape[1], k.shape[1]), torch.nan
            ),
        ),
    ),
    "check_context": (
        *usual(checks.check_context),
        detached(checks.check_context.solution),
        single(checks.check_context.solution),
        Wrong(
            "padding-unmasked",
            "pytorch/tutorials 2840: the sequence-to-sequence tutorial",
            "batches of equal lengths",
            unmasked,
        ),
        Wrong(
            "wrong-axis",
            "softmax without thinking of the axis (spro 149)",
            "the shape",
            softmax_of_queries,
        ),
        Wrong(
            "whole-batch-softmax",
            "F.softmax(x) without `dim` on three axes takes axis 0",
            "the shape",
            legacy_softmax_axis,
        ),
        Wrong(
            "masked-after",
            "the weights of padding are set to 0 afterwards",
            "that padding has no weight",
            mask_times_weights,
        ),
        Wrong(
            "one-too-many",
            "<= for < in the mask",
            "batches of equal lengths",
            inclusive_mask,
        ),
        Wrong(
            "sentinel",
            "the Annotated Transformer's -1e9, added",
            "usual scores in single precision",
            additive_mask,
        ),
        Wrong(
            "numbers",
            "a sentinel that seems low enough (hyunwoongko/transformer PR 40 "
            "has -10000)",
            "small scores, nearly",
            tiny_sentinel,
        ),
        Wrong(
            "numbers",
            "pad mask on the wrong axis (keras-io PR 1046)",
            "batches of equal lengths",
            query_mask,
        ),
        Wrong(
            "padding-unmasked",
            "the mask is made for the longest sequence",
            "batches of equal lengths",
            flat_lengths,
        ),
        Wrong(
            "shape",
            "`return value`, which several graders accept",
            "the weights",
            value_for_context,
        ),
        Wrong(
            "numbers",
            "scores and weights have one name in much code",
            "the context",
            scores_for_weights,
        ),
        Wrong(
            "shape",
            "keras and PyTorch return them in another order",
            "every number",
            swapped_outputs,
        ),
        Wrong(
            "gradient",
            "weights are detached for the plot, before they are used",
            "every number forwards, and half of the gradients",
            weights_detached,
        ),
        Wrong(
            "changed-input",
            "masked_fill_ for masked_fill",
            "every number, once",
            masked_in_place,
        ),
        Wrong(
            "numbers",
            "a constant against division by 0, too large",
            "three digits of most weights",
            renormalised_with_slack,
        ),
        Wrong(
            "ready-made",
            "scaled_dot_product_attention with a mask",
            "that padding is not looked at",
            lambda s, v, n: (
                SDPA(s, v, v, places(s) < n[:, None, None]),
                s.softmax(-1),
            ),
        ),
        Wrong(
            "type",
            "only the context is returned",
            "the context",
            lambda *x: checks.check_context.solution(*x)[0],
        ),
    ),
    "check_initial_state": (
        *usual(checks.check_initial_state),
        detached(checks.check_initial_state.solution),
        single(checks.check_initial_state.solution),
        Wrong(
            "forward-state",
            "the halves are told apart wrongly",
            "the shape",
            first_half,
        ),
        Wrong(
            "last-place",
            "the last state is the one to take, whatever the direction",
            "sentences of one word",
            last_of_backward,
        ),
        Wrong(
            "forward-end",
            "keon/seq2seq PR 32: the backward direction dropped",
            "the shape",
            last_of_forward,
        ),
        Wrong(
            "numbers",
            "both directions are added, as many encoders do",
            "the shape",
            both_summed,
        ),
        Wrong(
            "shape",
            "batch_first forgotten",
            "square batches, in shape",
            batch_for_time,
        ),
        Wrong(
            "relu-for-tanh",
            "relu is what one uses today",
            "positive entries, nearly",
            lambda h, W: F.relu(F.linear(h[:, 0, W.shape[1] :], W)),
        ),
        Wrong(
            "zeros",
            "PyTorch's GRU starts from zeros by itself",
            "the shape",
            lambda h, W: torch.zeros(len(h), len(W), dtype=h.dtype),
        ),
    ),
    "check_decoder_step": (
        *usual(checks.check_decoder_step),
        detached(checks.check_decoder_step.solution),
        single(checks.check_decoder_step.solution),
        Wrong(
            "state-lost",
            "tensorflow/tensorflow 38248: the NMT tutorial's GRU never "
            "receives its previous state",
            "the weights, and a first step from zeros",
            no_state,
        ),
        Wrong(
            "numbers",
            "Luong's order: first the step, then the look",
            "the shapes",
            luong_order,
        ),
        Wrong(
            "context-first",
            "PyTorch's tutorial and Keras's join them in different orders",
            "the weights",
            wrong_way_round,
        ),
        Wrong(
            "padding-unmasked",
            "the mask is forgotten because one step has no padding of its own",
            "batches of equal lengths",
            all_of_it,
        ),
        Wrong(
            "shape",
            "the context is returned for the weights",
            "the state",
            state_and_context,
        ),
        Wrong(
            "gradient",
            "the context is cut off, and the weights cannot learn from it",
            "every number forwards",
            context_detached,
        ),
        Wrong("shape", "the query's axis stays", "every number", with_an_axis),
        Wrong(
            "numbers",
            "the best place alone, as hard attention does",
            "the weights",
            best_place_only,
        ),
    ),
    "check_alignment_error": (
        *usual(checks.check_alignment_error),
        Wrong(
            "sure-only",
            "one set of gold links is what most tasks have",
            "gold links that are all sure",
            lambda *x: ratio(*x, weigh=lambda s, p, a, n: 1 - 2 * s / (a + n)),
        ),
        Wrong(
            "mean-of-sentences",
            "a loop over sentences and a mean at the end",
            "one sentence",
            averaged,
        ),
        Wrong(
            "numbers",
            "|P| for |S| below the line",
            "gold links that are all sure",
            with_possible_below,
        ),
        Wrong(
            "numbers",
            "possible is read as: possible but not sure",
            "no link at all",
            only_newly_possible,
        ),
        Wrong(
            "numbers",
            "links are written (source, target) in many files",
            "links on the diagonal",
            turned_links,
        ),
        Wrong(
            "score-not-error",
            "1 minus the error is a quality",
            "a rate of one half",
            lambda *x: ratio(*x, weigh=lambda s, p, a, n: (s + p) / (a + n)),
        ),
        Wrong(
            "recall-error",
            "recall alone: were the sure links found?",
            "the right links",
            lambda *x: ratio(*x, weigh=lambda s, p, a, n: 1 - s / n),
        ),
        Wrong(
            "numbers",
            "constant: a trained model ends near one value",
            "one case by luck",
            lambda *x: 0.5,
        ),
    ),
}
