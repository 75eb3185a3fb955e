"""Wrong answers to the exercises of chapters/02_bahdanau."""

import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import bahdanau as checks
from wrong_answers import Wrong, make
from wrong_answers.make import Answers, collect_answers

SDPA = F.scaled_dot_product_attention


def places(scores):
    return torch.arange(scores.shape[-1], device=scores.device)


def looked_back(state, memory, lengths, W_query, W_key, v):
    query = F.linear(state, W_query).unsqueeze(1)
    scores = torch.tanh(query + F.linear(memory, W_key)) @ v
    real = torch.arange(memory.shape[1]) < lengths.unsqueeze(1)
    weights = scores.masked_fill(~real, -torch.inf).softmax(1)
    return (weights.unsqueeze(2) * memory).sum(1), weights


def ratio(predicted, sure, possible, *, weigh):
    counts = [0, 0, 0, 0]
    for a, s, p in zip(predicted, sure, possible, strict=True):
        for i, n in enumerate((len(a & s), len(a & p), len(a), len(s))):
            counts[i] += n
    return weigh(*counts)


ADDITIVE_SCORES = Answers(checks.check_additive_scores, make.detached, make.in_double)
ADDITIVE_SCORES += (
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
        lambda q, k, W, U, v: nn.MultiheadAttention(len(v), 1, batch_first=True)(
            q @ W.T, k @ U.T, k @ U.T
        )[1],
    ),
    Wrong(
        "nan",
        "a mean over an axis that is empty",
        "the shape",
        lambda q, k, *x: q.new_full((len(q), q.shape[1], k.shape[1]), torch.nan),
    ),
)


@ADDITIVE_SCORES.wrong("error", "the shape, where T = S")
def zipped_scores(query, key, W_query, W_key, v):
    """The new axis is forgotten, and T = S in the toy example."""
    hidden = torch.tanh(query @ W_query.T + key @ W_key.T)
    return (hidden @ v)[:, None].expand(-1, query.shape[1], -1)


@ADDITIVE_SCORES.wrong("numbers", "T = 1, which a decoder uses")
def scores_of_first_query(query, key, W_query, W_key, v):
    """One decoder step is all that a decoder ever sees at a time."""
    hidden = torch.tanh(query[:, :1] @ W_query.T + key @ W_key.T)
    return (hidden @ v)[:, None].expand(-1, query.shape[1], -1)


@ADDITIVE_SCORES.wrong("error", "nothing, unless the widths agree")
def untransposed(query, key, W_query, W_key, v):
    """The paper writes W s, a column; rows need x @ W.T."""
    hidden = torch.tanh((query @ W_query)[:, :, None] + (key @ W_key)[:, None])
    return hidden @ v


@ADDITIVE_SCORES.wrong("numbers", "the shape")
def transposed_by_reshape(query, key, W_query, W_key, v):
    """A reshape to silence an error about shapes."""
    queries, keys = query @ W_query.T, key @ W_key.T
    hidden = torch.tanh(queries[:, None] + keys[:, :, None]) @ v
    return hidden.reshape(len(query), query.shape[1], key.shape[1])


@ADDITIVE_SCORES.wrong("numbers", "a batch of one")
def first_of_batch(query, key, W_query, W_key, v):
    """Tried on a batch of one."""
    keys = key[:1] @ W_key.T
    return torch.tanh((query @ W_query.T)[:, :, None] + keys[:, None]) @ v


@ADDITIVE_SCORES.wrong("shape", "every number")
def keeps_an_axis(query, key, W_query, W_key, v):
    """v is made a column, as in nn.Linear(A, 1)."""
    hidden = torch.tanh((query @ W_query.T)[:, :, None] + (key @ W_key.T)[:, None])
    return hidden @ v[:, None]


@ADDITIVE_SCORES.wrong("tanh-too-early", "the shape")
def concatenated(query, key, W_query, W_key, v):
    """concat is taken for the additive score (Luong 2015 has one)."""
    pairs = torch.cat(
        [
            (query @ W_query.T)[:, :, None].expand(-1, -1, key.shape[1], -1),
            (key @ W_key.T)[:, None].expand(-1, query.shape[1], -1, -1),
        ],
        dim=-1,
    )
    return torch.tanh(pairs) @ torch.cat([v, v])


@ADDITIVE_SCORES.wrong("detached", "every number forwards")
def without_graph(query, key, W_query, W_key, v):
    """The projections are made once, without a graph, to save time."""
    with torch.no_grad():
        queries, keys = query @ W_query.T, key @ W_key.T
    return torch.tanh(queries[:, :, None] + keys[:, None]) @ v


@ADDITIVE_SCORES.wrong("detached", "every number, and most gradients")
def key_detached(query, key, W_query, W_key, v):
    """The encoder is frozen by cutting its states off."""
    keys = key.detach() @ W_key.T
    return torch.tanh((query @ W_query.T)[:, :, None] + keys[:, None]) @ v


CONTEXT = Answers(checks.check_context, make.detached, make.in_double, make.first_alone)
CONTEXT += (
    Wrong(
        "ready-made",
        "scaled_dot_product_attention with a mask",
        "that padding is not looked at",
        lambda s, v, n: (
            SDPA(s, v, v, places(s) < n[:, None, None]),
            s.softmax(-1),
        ),
    ),
)


@CONTEXT.wrong("numbers", "small scores, nearly")
def tiny_sentinel(scores, value, lengths):
    """A sentinel that seems low enough (hyunwoongko/transformer PR 40 has
    -10000)."""
    real = places(scores) < lengths[:, None, None]
    weights = scores.masked_fill(~real, -10.0).softmax(-1)
    return weights @ value, weights


@CONTEXT.wrong("numbers", "batches of equal lengths")
def query_mask(scores, value, lengths):
    """Pad mask on the wrong axis (keras-io PR 1046)."""
    steps = torch.arange(scores.shape[1])
    real = steps[:, None] < lengths[:, None, None]
    weights = torch.where(real, scores.softmax(-1), 0.0)
    return weights @ value, weights


@CONTEXT.wrong("shape", "the weights")
def value_for_context(scores, value, lengths):
    """`return value`, which several graders accept."""
    real = places(scores) < lengths[:, None, None]
    weights = scores.masked_fill(~real, -torch.inf).softmax(-1)
    return value, weights


@CONTEXT.wrong("numbers", "the context")
def scores_for_weights(scores, value, lengths):
    """Scores and weights have one name in much code."""
    real = places(scores) < lengths[:, None, None]
    weights = scores.masked_fill(~real, -torch.inf).softmax(-1)
    return weights @ value, scores


@CONTEXT.wrong("shape", "every number")
def swapped_outputs(scores, value, lengths):
    """Keras and PyTorch return them in another order."""
    context, weights = checks.check_context.solution(scores, value, lengths)
    return weights, context


@CONTEXT.wrong("gradient", "every number forwards, and half of the gradients")
def weights_detached(scores, value, lengths):
    """Weights are detached for the plot, before they are used."""
    _, weights = checks.check_context.solution(scores, value, lengths)
    return weights.detach() @ value, weights


@CONTEXT.wrong("changed-input", "every number, once")
def masked_in_place(scores, value, lengths):
    """masked_fill_ for masked_fill."""
    real = places(scores) < lengths[:, None, None]
    weights = scores.masked_fill_(~real, -torch.inf).softmax(-1)
    return weights @ value, weights


@CONTEXT.wrong("numbers", "three digits of most weights")
def renormalised_with_slack(scores, value, lengths):
    """A constant against division by 0, too large."""
    real = places(scores) < lengths[:, None, None]
    weights = scores.softmax(-1) * real
    weights = weights / (weights.sum(-1, keepdim=True) + 1e-3)
    return weights @ value, weights


INITIAL_STATE = Answers(checks.check_initial_state, make.detached, make.in_double)


@INITIAL_STATE.wrong("numbers", "the shape")
def both_summed(states, W):
    """Both directions are added, as many encoders do."""
    forward, backward = states.chunk(2, dim=-1)
    return torch.tanh((forward[:, -1] + backward[:, 0]) @ W.T)


@INITIAL_STATE.wrong("shape", "square batches, in shape")
def batch_for_time(states, W):
    """batch_first forgotten."""
    return torch.tanh(states[0, :, W.shape[1] :] @ W.T)


DECODER_STEP = Answers(checks.check_decoder_step, make.detached, make.in_double)


@DECODER_STEP.wrong("numbers", "the shapes")
def luong_order(state, word, memory, lengths, W_query, W_key, v, cell):
    """Luong's order: first the step, then the look."""
    blank = torch.zeros(len(word), memory.shape[2], dtype=word.dtype)
    state = cell(torch.cat([word, blank], dim=1), state)
    _, weights = looked_back(state, memory, lengths, W_query, W_key, v)
    return state, weights


@DECODER_STEP.wrong("shape", "the state")
def state_and_context(state, word, memory, lengths, W_query, W_key, v, cell):
    """The context is returned for the weights."""
    seen, _ = looked_back(state, memory, lengths, W_query, W_key, v)
    return cell(torch.cat([word, seen], dim=1), state), seen


@DECODER_STEP.wrong("gradient", "every number forwards")
def context_detached(state, word, memory, lengths, W_query, W_key, v, cell):
    """The context is cut off, and the weights cannot learn from it."""
    seen, weights = looked_back(state, memory, lengths, W_query, W_key, v)
    return cell(torch.cat([word, seen.detach()], dim=1), state), weights


@DECODER_STEP.wrong("shape", "every number")
def with_an_axis(*inputs):
    """The query's axis stays."""
    state, weights = checks.check_decoder_step.solution(*inputs)
    return state, weights[:, None]


@DECODER_STEP.wrong("numbers", "the weights")
def best_place_only(state, word, memory, lengths, W_query, W_key, v, cell):
    """The best place alone, as hard attention does."""
    _, weights = looked_back(state, memory, lengths, W_query, W_key, v)
    seen = memory[torch.arange(len(memory)), weights.argmax(1)]
    return cell(torch.cat([word, seen], dim=1), state), weights


ALIGNMENT_ERROR = Answers(checks.check_alignment_error)
ALIGNMENT_ERROR += (
    Wrong(
        "numbers",
        "constant: a trained model ends near one value",
        "one case by luck",
        lambda *x: 0.5,
    ),
)


@ALIGNMENT_ERROR.wrong("numbers", "gold links that are all sure")
def with_possible_below(predicted, sure, possible):
    """|P| for |S| below the line."""
    return ratio(
        predicted,
        sure,
        possible,
        weigh=lambda s, p, a, n: 1 - (s + p) / (a + sum(len(x) for x in possible)),
    )


@ALIGNMENT_ERROR.wrong("numbers", "no link at all")
def only_newly_possible(predicted, sure, possible):
    """Possible is read as: possible but not sure."""
    return ratio(
        predicted,
        sure,
        [p - s for s, p in zip(sure, possible, strict=True)],
        weigh=lambda s, p, a, n: 1 - (s + p) / (a + n),
    )


@ALIGNMENT_ERROR.wrong("numbers", "links on the diagonal")
def turned_links(predicted, sure, possible):
    """Links are written (source, target) in many files."""
    turned = [{(s, t) for t, s in a} for a in predicted]
    return checks.check_alignment_error.solution(turned, sure, possible)


ATTENTION_COST = Answers(checks.check_attention_cost)


@ATTENTION_COST.wrong("numbers", "every ratio")
def cost_in_bytes(*sizes):
    """Memory is measured in bytes elsewhere."""
    return [4 * x for x in checks.check_attention_cost.solution(*sizes)]


@ATTENTION_COST.wrong("numbers", "parameters and memory")
def cost_with_sums(B, T, S, N, M, A):
    """Additions are counted as well, as FLOPs are."""
    once = B * S * A * (2 * M - 1)
    return [A * (N + M + 1), B * T * S * A, once, T * once]


@ATTENTION_COST.wrong("numbers", "parameters and memory")
def cost_of_queries(B, T, S, N, M, A):
    """The queries are projected instead of the keys."""
    return [A * (N + M + 1), B * T * S * A, B * T * N * A, B * T * N * A]


@ATTENTION_COST.wrong("type", "every number")
def cost_with_names(*sizes):
    """The counts have names."""
    return dict(enumerate(checks.check_attention_cost.solution(*sizes)))


DECODER_FAULT = Answers(checks.check_decoder_fault, *make.DECISION)


@DECODER_FAULT.wrong("always-right", "steps without a fault")
def fault_by_shapes(step, state, word, memory, lengths):
    """Only shapes are tested, and they are always right."""
    following, weights = step(state, word, memory, lengths)
    right = following.shape == state.shape
    return int(not (right and weights.shape == memory.shape[:2]))


@DECODER_FAULT.wrong("numbers", "every other fault")
def fault_without_fifth(*inputs):
    """The order of attention and step is not tested."""
    found = checks.check_decoder_fault.solution(*inputs)
    return found if found < 5 else 0


@DECODER_FAULT.wrong("numbers", "faults of the weights")
def fault_by_zero_memory(step, *inputs):
    """The states are set to zero, so that every context vector is zero."""
    return checks.check_decoder_fault.solution(
        lambda s, w, m, n: step(s, w, torch.zeros_like(m), n), *inputs
    )


EXPLANATION = Answers(
    checks.check_alignment_explanation, *make.DECISION, make.counted_from_one
)


@EXPLANATION.wrong("numbers", "models that attend by slot")
def explained_by_middle(model, S):
    """The words are reversed, and the middle one stays."""
    order = list(range(S))[::-1]
    found = model(order, list(range(S)), S // 2)
    return 0 if found == S // 2 else 2


@EXPLANATION.wrong("error", "sentences of five words or more")
def explained_for_five(model, S):
    """The length of the first example is assumed."""
    return checks.check_alignment_explanation.solution(
        lambda words, slots, t: model([*words, *range(S, 5)], slots, t), S
    )


@EXPLANATION.wrong("numbers", "nothing")
def explained_by_first_slot(model, S):
    """The model is run once, and its slot is returned."""
    return model(list(range(S)), list(range(S)), 0)


@EXPLANATION.wrong("error", "nothing")
def explained_by_one_word(model, S):
    """The same word is put everywhere."""
    return model([0] * S, list(range(S)), 0)


ANSWERS = collect_answers(checks, vars())
