"""Wrong answers to the exercises of chapters/06_multi_head."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from attnbook.attention.multi_head import merge_heads, split_heads
from attnbook.exercises import multi_head as checks
from attnbook.exercises.multi_head.grouped_query import change_groups
from attnbook.exercises.multi_head.multi_head import (
    average_values,
    change_heads,
)
from wrong_answers import Wrong, make
from wrong_answers.make import Answers, collect_answers

RIGHT = change_heads()


def group_of(index):
    """Return grouped attention in which a function of h names the group."""

    def answer(query, key, value):
        H, G = query.shape[1], key.shape[1]
        which = [index(h, H, G) for h in range(H)]
        return average_values(query, key[:, which], value[:, which])

    return answer


SPLIT_HEADS = Answers(checks.check_split_heads, make.detached, make.in_double)
SPLIT_HEADS += (
    Wrong("numbers", "heads counted from 1 (the book by rasbt numbers "
          "heads from 1)", "all but one", lambda x, H: torch.stack(
              [split_heads(x, H)[:, min(h + 1, H - 1)]
               for h in range(H)], 1)),
    Wrong("type", "`chunk` alone gives a tuple", "each head",
          lambda x, H: x.chunk(H, dim=-1)),
    Wrong("shape", "the first head instead of all", "the first head",
          lambda x, H: split_heads(x, H)[:, 0]),
)  # fmt: skip


@SPLIT_HEADS.wrong("numbers", "one head")
def split_scaled(x, heads):
    """The scale is put here, and is that of the heads."""
    return split_heads(x, heads) / math.sqrt(heads)


@SPLIT_HEADS.wrong("numbers", "one head")
def split_by_unfold(x, heads):
    """Blocks that overlap: a step of 1 for a step of D."""
    D = x.shape[-1] // heads
    return x.unfold(-1, D, 1)[:, :, :heads].transpose(1, 2)


@SPLIT_HEADS.wrong("numbers", "one head")
def split_rotated(x, heads):
    """An off-by-one in the order of heads."""
    return split_heads(x, heads).roll(1, dims=1)


@SPLIT_HEADS.wrong("numbers", "the shape")
def split_softmaxed(x, heads):
    """softmax of the features."""
    return split_heads(x, heads).softmax(-1)


@SPLIT_HEADS.wrong("numbers", "a batch of one")
def split_first_of_batch(x, heads):
    """`x[0]` for a batch."""
    return split_heads(x[:1].expand_as(x), heads)


@SPLIT_HEADS.wrong("numbers", "one position")
def split_last_position(x, heads):
    """Only the last position is looked at."""
    return split_heads(x[:, -1:].expand_as(x), heads)


@SPLIT_HEADS.wrong("numbers", "one column a head")
def split_columns_flipped(x, heads):
    """Columns flipped."""
    return split_heads(x, heads).flip(-1)


MERGE_HEADS = Answers(checks.check_merge_heads, make.detached, make.in_double)
MERGE_HEADS += (
    Wrong("shape", "a single long row", "one position",
          lambda x: merge_heads(x).flatten(1)),
    Wrong("type", "a list of heads", "each head",
          lambda x: list(x.unbind(1))),
)  # fmt: skip


@MERGE_HEADS.wrong("numbers", "one head")
def merge_scaled(x):
    """Divided by the number of heads."""
    return merge_heads(x) / x.shape[1]


@MERGE_HEADS.wrong("shape", "one head")
def merge_max(x):
    """The strongest head."""
    return x.amax(1)


@MERGE_HEADS.wrong("shape", "one head")
def merge_last(x):
    """The last head."""
    return x[:, -1] * 1


@MERGE_HEADS.wrong("numbers", "one head")
def merge_rotated(x):
    """An off-by-one in the order of heads."""
    return merge_heads(x.roll(1, dims=1))


@MERGE_HEADS.wrong("numbers", "the width")
def merge_mean_repeated(x):
    """The mean in every place."""
    return x.mean(1).repeat(1, 1, x.shape[1])


@MERGE_HEADS.wrong("numbers", "one column a head")
def merge_columns_flipped(x):
    """Columns flipped."""
    return merge_heads(x.flip(-1))


@MERGE_HEADS.wrong("shape", "the numbers")
def merge_for_time(x):
    """Features before positions."""
    return merge_heads(x).mT


MULTI_HEAD = Answers(checks.check_multi_head, make.detached, make.in_double)
MULTI_HEAD += (
    Wrong("numbers", "softmax twice", "one position", change_heads(
        then=lambda w: w.softmax(-1))),
    Wrong("numbers", "scaled after the softmax", "D = 1", change_heads(
        scale=lambda D, H: 1.0, then=lambda w: w / math.sqrt(7))),
    Wrong("numbers", "multiplied by √D: ** 0.5", "D = 1", change_heads(
        scale=lambda D, H: D**0.5)),
    Wrong("numbers", "each position is hidden from itself", "nothing",
          change_heads(bend=lambda s: s.masked_fill(
              torch.eye(s.shape[-1], dtype=torch.bool), -30.0))),
    Wrong("numbers", "W_output before the heads are merged back",
          "one head", lambda x, Q, K, V, W, H: RIGHT(
              x, Q, K, W @ V, torch.eye(len(W), dtype=x.dtype), H)),
    Wrong("numbers", "hard attention: the best key alone",
          "one position", change_heads(then=lambda w: F.one_hot(
              w.argmax(-1), w.shape[-1]).to(w.dtype))),
)  # fmt: skip


@MULTI_HEAD.wrong("scale-by-model-width", "one head")
def karpathys_scale(x, W_query, W_key, W_value, W_output, heads):
    """C ** -0.5 (karpathy/ng-video-lecture, pull request 6)."""
    outputs = []
    for Q, K, V in zip(
        *(W.chunk(heads) for W in (W_query, W_key, W_value)), strict=True
    ):
        scores = (x @ Q.T) @ (x @ K.T).mT * x.shape[-1] ** -0.5
        outputs.append(scores.softmax(-1) @ (x @ V.T))
    return torch.cat(outputs, -1) @ W_output.T


@MULTI_HEAD.wrong("numbers", "one head")
def all_in_one_small_scale(x, W_query, W_key, W_value, W_output, heads):
    """Heads are used for the scale alone."""
    scores = (x @ W_query.T) @ (x @ W_key.T).mT
    weights = (scores / math.sqrt(x.shape[-1] / heads)).softmax(-1)
    return weights @ (x @ W_value.T) @ W_output.T


@MULTI_HEAD.wrong("numbers", "one head")
def scores_summed(x, W_query, W_key, W_value, W_output, heads):
    """Legacy code adds the heads' scores before one softmax."""
    return change_heads(bend=lambda s: s.sum(1, keepdim=True))(
        x, W_query, W_key, W_value, W_output, heads
    )


@MULTI_HEAD.wrong("numbers", "one head")
def output_per_head(x, W_query, W_key, W_value, W_output, heads):
    """One block of W_output for every head."""
    D = x.shape[-1] // heads
    split = change_heads(merge=lambda y: y, output=lambda y, W: y)(
        x, W_query, W_key, W_value, W_output, heads
    )
    return merge_heads(split @ W_output[:D, :D].T)


@MULTI_HEAD.wrong("numbers", "nothing")
def with_residual(x, *rest):
    """The residual connection is already there."""
    return x + RIGHT(x, *rest)


@MULTI_HEAD.wrong("numbers", "the shape")
def normalised(x, *rest):
    """Layer normalisation is already there."""
    return F.layer_norm(RIGHT(x, *rest), x.shape[-1:])


@MULTI_HEAD.wrong("numbers", "one position")
def first_query(x, *rest):
    """Only the first position asks."""
    return RIGHT(x, *rest)[:, :1].expand_as(x)


@MULTI_HEAD.wrong("numbers", "a batch of one")
def across_the_batch(x, W_query, W_key, W_value, W_output, heads):
    """Batch and positions flattened before attention."""
    flat = x.flatten(0, 1)[None]
    output = RIGHT(flat, W_query, W_key, W_value, W_output, heads)
    return output.view_as(x)


@MULTI_HEAD.wrong("numbers", "one of each")
def batch_second(x, *rest):
    """batch_first forgotten: the axes of batch and positions have changed
    places."""
    return RIGHT(x.transpose(0, 1), *rest).transpose(0, 1)


@MULTI_HEAD.wrong("ready-made", "everything")
def ready_made(x, W_query, W_key, W_value, W_output, heads):
    """F.scaled_dot_product_attention."""
    query, key, value = (split_heads(x @ W.T, heads) for W in (W_query, W_key, W_value))
    looked = F.scaled_dot_product_attention(query, key, value)
    return merge_heads(looked) @ W_output.T


@MULTI_HEAD.wrong("ready-made", "everything")
def torchs_module(x, W_query, W_key, W_value, W_output, heads):
    """nn.MultiheadAttention."""
    module = nn.MultiheadAttention(
        x.shape[-1], heads, bias=False, batch_first=True, dtype=x.dtype
    )
    module.in_proj_weight.data = torch.cat([W_query, W_key, W_value])
    module.out_proj.weight.data = W_output
    return module(x, x, x)[0]


@MULTI_HEAD.wrong("nan", "small scores")
def overflowing(x, W_query, W_key, W_value, W_output, heads):
    """exp without subtracting the maximum: it overflows."""
    query, key, value = (split_heads(x @ W.T, heads) for W in (W_query, W_key, W_value))
    powers = (query @ key.mT * query.shape[-1] ** -0.5).exp()
    weights = powers / powers.sum(-1, keepdim=True)
    return merge_heads(weights @ value) @ W_output.T


@MULTI_HEAD.wrong("random", "the shape")
def own_weights(x, W_query, W_key, W_value, W_output, heads):
    """A fresh nn.Linear for W_output."""
    layer = nn.Linear(x.shape[-1], x.shape[-1], bias=False).to(x.dtype)
    return RIGHT(x, W_query, W_key, W_value, layer.weight, heads)


@MULTI_HEAD.wrong("random", "the mean")
def dropped(x, *rest):
    """Dropout on the weights, always on."""
    return change_heads(then=lambda w: F.dropout(w, 0.1))(x, *rest)


GROUPED_QUERY = Answers(checks.check_grouped_query, make.detached, make.in_double)
GROUPED_QUERY += (
    Wrong("numbers", "softmax twice", "one key",
          change_groups(then=lambda w: w.softmax(-1))),
    Wrong("numbers", "the neighbours' group, one off", "one group",
          group_of(lambda h, H, G: ((h + 1) * G // H) % G)),
    Wrong("numbers", "scaled by the number of keys", "S = D",
          lambda q, k, v: change_groups(
              scale=lambda D, H: k.shape[2] ** -0.5)(q, k, v)),
)  # fmt: skip


@GROUPED_QUERY.wrong("repeat", "one group")
def broadcast_wrongly(query, key, value):
    """The axis of heads in a group comes before that of groups."""
    split = query.unflatten(1, (-1, key.shape[1]))
    return average_values(
        split,
        key[:, None],
        value[:, None],
        scale=lambda D, H: query.shape[-1] ** -0.5,
    ).flatten(1, 2)


@GROUPED_QUERY.wrong("numbers", "one group")
def all_groups_at_once(query, key, value):
    """Every head looks at the keys of all groups."""
    return average_values(
        query, key.flatten(1, 2)[:, None], value.flatten(1, 2)[:, None]
    )


@GROUPED_QUERY.wrong("shape", "as many groups as heads")
def one_head_each(query, key, value):
    """One head of each group."""
    each = query.shape[1] // key.shape[1]
    return change_groups()(query[:, ::each], key, value)


@GROUPED_QUERY.wrong("numbers", "as many groups as heads")
def first_head_for_group(query, key, value):
    """The group's first head asks for all."""
    each = query.shape[1] // key.shape[1]
    first = query[:, ::each].repeat_interleave(each, dim=1)
    return change_groups()(first, key, value)


@GROUPED_QUERY.wrong("error", "one group")
def unshared(query, key, value):
    """Keys and values are not repeated at all."""
    return average_values(query, key, value)


@GROUPED_QUERY.wrong("error", "H = G²")
def repeated_too_often(query, key, value):
    """Repeated G times, not H / G times."""
    G = key.shape[1]
    keys, values = (x.repeat_interleave(G, dim=1) for x in (key, value))
    return average_values(query, keys, values)


@GROUPED_QUERY.wrong("nan", "small scores")
def unstable(query, key, value):
    """exp without subtracting the maximum."""
    each = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(each, dim=1) for x in (key, value))
    powers = (query @ key.mT * query.shape[-1] ** -0.5).exp()
    return powers / powers.sum(-1, keepdim=True) @ value


@GROUPED_QUERY.wrong("ready-made", "everything")
def sdpa_grouped(query, key, value):
    """enable_gqa=True."""
    return F.scaled_dot_product_attention(query, key, value, enable_gqa=True)


HEAD_COST = Answers(checks.check_head_cost, make.in_texts)


@HEAD_COST.wrong("numbers", "every ratio")
def cost_in_bytes(*sizes):
    """The counts are in bytes of half precision."""
    return [2 * x for x in checks.check_head_cost.solution(*sizes)]


@HEAD_COST.wrong("numbers", "weights, products and cache")
def cost_with_biases(C, H, G, T, S):
    """The biases of the projections are counted."""
    parameters, *rest = checks.check_head_cost.solution(C, H, G, T, S)
    return [parameters + 2 * C + 2 * G * (C // H), *rest]


@HEAD_COST.wrong("numbers", "parameters, weights and cache")
def cost_of_both_products(C, H, G, T, S):
    """The averages of the values are counted with the scores."""
    parameters, weights, products, cache = checks.check_head_cost.solution(
        C, H, G, T, S
    )
    return [parameters, weights, 2 * products, cache]


@HEAD_COST.wrong("numbers", "as many groups as heads")
def cost_with_heads_in_a_group(C, H, G, T, S):
    """G is taken for the number of heads in a group."""
    return checks.check_head_cost.solution(C, H, H // G, T, S)


LAYER_FAULT = Answers(checks.check_layer_fault, *make.DECISION)


@LAYER_FAULT.wrong("numbers", "every other fault")
def fault_without_fifth(layer, x, heads):
    """Attention over the batch is not tested."""
    found = checks.check_layer_fault.solution(layer, x, heads)
    return found if found < 5 else 0


@LAYER_FAULT.wrong("numbers", "split, merge and batch")
def fault_of_weights_only(layer, x, heads):
    """Averages of weights are found, averages of scores are not."""
    found = checks.check_layer_fault.solution(layer, x, heads)
    return 0 if found == 4 and "scores" in layer.built_in else found


@LAYER_FAULT.wrong("error", "nothing")
def fault_with_wrong_matrices(layer, x, heads):
    """The matrices have the width of a head."""
    D = x.shape[-1] // heads
    return int(layer(x, *4 * [torch.eye(D)]).isnan().any())


COPYING_HEADS = Answers(
    checks.check_copying_heads, *make.DECISION, make.counted_from_one
)


@COPYING_HEADS.wrong("numbers", "two of the five explanations")
def copying_by_mean(model, weights):
    """The accuracies are averaged before they are compared."""
    first, second = (h for h, w in enumerate(weights) if w > 0.9)
    found = [model(gone) for gone in ({first}, {second}, {first, second})]
    return 3 if sum(found) / 3 < 0.5 else 2


@COPYING_HEADS.wrong("error", "four heads")
def copying_of_counted_heads(model, weights):
    """Heads are counted from 1, so the last one does not exist."""
    return int(model({len(weights)}) < 0.5)


@COPYING_HEADS.wrong("numbers", "models in which head 0 and 1 attend")
def copying_of_first_two(model, weights):
    """The first two heads are removed, wherever the weight is."""
    moved = [1.0, 1.0, *[0.0] * (len(weights) - 2)]
    return checks.check_copying_heads.solution(model, moved)


ANSWERS = collect_answers(checks, vars())
