"""Wrong answers to the exercises of chapters/06_multi_head."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from attnbook.attention.multi_head import merge_heads, split_heads
from attnbook.exercises import multi_head as checks
from attnbook.exercises.multi_head.answers import (
    past,
    weighed,
    with_groups,
    with_heads,
)
from wrong_answers import Wrong
from wrong_answers.common import detached, single, usual

RIGHT = with_heads()


def any_answer(check):
    return (*usual(check), detached(check.solution), single(check.solution))


# Heads split


def split_viewed(x, heads):
    B, T, C = x.shape
    return x.contiguous().view(B, heads, T, C // heads)


def split_einops_swapped(x, heads):
    """`b t (d h) -> b h t d` for `b t (h d) -> b h t d`."""
    B, T, C = x.shape
    return x.reshape(B, T, C // heads, heads).permute(0, 3, 1, 2)


def split_along_positions(x, heads):
    return torch.stack([h.mT for h in x.mT.chunk(heads, dim=1)], dim=0)


def split_strided(x, heads):
    return torch.stack([x[..., h::heads] for h in range(heads)], dim=1)


def split_scaled(x, heads):
    return split_heads(x, heads) / math.sqrt(heads)


def split_by_unfold(x, heads):
    """Blocks that overlap: a step of 1 for a step of D."""
    D = x.shape[-1] // heads
    return x.unfold(-1, D, 1)[:, :, :heads].transpose(1, 2)


def split_rotated(x, heads):
    return split_heads(x, heads).roll(1, dims=1)


def split_softmaxed(x, heads):
    return split_heads(x, heads).softmax(-1)


def split_first_of_batch(x, heads):
    return split_heads(x[:1].expand_as(x), heads)


def split_last_position(x, heads):
    return split_heads(x[:, -1:].expand_as(x), heads)


def split_columns_flipped(x, heads):
    return split_heads(x, heads).flip(-1)


# Heads merged


def merge_viewed(x):
    B, H, T, D = x.shape
    return x.contiguous().view(B, T, H * D)


def merge_along_time(x):
    return torch.cat(x.unbind(1), dim=1)


def merge_in_turns(x):
    return torch.stack(x.unbind(1), dim=-1).flatten(-2)


def merge_scaled(x):
    return merge_heads(x) / x.shape[1]


def merge_max(x):
    return x.amax(1)


def merge_last(x):
    return x[:, -1] * 1


def merge_rotated(x):
    return merge_heads(x.roll(1, dims=1))


def merge_mean_repeated(x):
    return x.mean(1).repeat(1, 1, x.shape[1])


def merge_columns_flipped(x):
    return merge_heads(x.flip(-1))


def merge_transposed_twice(x):
    return x.transpose(1, 2).transpose(1, 2).reshape(len(x), x.shape[2], -1)


def merge_for_time(x):
    return merge_heads(x).mT


# Several heads


def karpathys_scale(x, W_query, W_key, W_value, W_output, heads):
    """By the model's width (karpathy/ng-video-lecture, pull request 6)."""
    outputs = []
    for Q, K, V in zip(
        *(W.chunk(heads) for W in (W_query, W_key, W_value)), strict=True
    ):
        scores = (x @ Q.T) @ (x @ K.T).mT * x.shape[-1] ** -0.5
        outputs.append(scores.softmax(-1) @ (x @ V.T))
    return torch.cat(outputs, -1) @ W_output.T


def scaled_by_heads(x, W_query, W_key, W_value, W_output, heads):
    query, key, value = (
        split_heads(F.linear(x, W), heads) for W in (W_query, W_key, W_value)
    )
    weights = torch.softmax(query @ key.mT / math.sqrt(heads), dim=-1)
    return F.linear(merge_heads(weights @ value), W_output)


def viewed_at_both_ends(x, W_query, W_key, W_value, W_output, heads):
    B, T, C = x.shape
    query, key, value = (
        F.linear(x, W).view(B, heads, T, C // heads)
        for W in (W_query, W_key, W_value)
    )
    scores = query @ key.mT / math.sqrt(C // heads)
    return F.linear((scores.softmax(-1) @ value).view(B, T, C), W_output)


def viewed_at_the_end(x, W_query, W_key, W_value, W_output, heads):
    B, T, C = x.shape
    query, key, value = (
        F.linear(x, W).view(B, T, heads, -1).transpose(1, 2)
        for W in (W_query, W_key, W_value)
    )
    weights = F.softmax(query @ key.mT * query.shape[-1] ** -0.5, dim=-1)
    return F.linear((weights @ value).contiguous().view(B, T, C), W_output)


def among_heads(x, W_query, W_key, W_value, W_output, heads):
    B, T, C = x.shape
    query, key, value = (
        F.linear(x, W).view(B, T, heads, -1) for W in (W_query, W_key, W_value)
    )
    weights = F.softmax(query @ key.mT / math.sqrt(C / heads), dim=-1)
    return F.linear((weights @ value).view(B, T, C), W_output)


def queries_only(x, W_query, W_key, W_value, W_output, heads):
    return F.linear(F.linear(x, W_query), W_output)


def values_only(x, W_query, W_key, W_value, W_output, heads):
    return merge_heads(split_heads(x @ W_value.T, heads)) @ W_output.T


def mean_of_values(x, W_query, W_key, W_value, W_output, heads):
    value = (x @ W_value.T).mean(1, keepdim=True)
    return value.expand(-1, x.shape[1], -1) @ W_output.T


def without_last_matrix(x, W_query, W_key, W_value, W_output, heads):
    eye = torch.eye(len(W_output), dtype=x.dtype)
    return RIGHT(x, W_query, W_key, W_value, eye, heads)


def all_in_one(x, W_query, W_key, W_value, W_output, heads):
    scores = (x @ W_query.T) @ (x @ W_key.T).mT / math.sqrt(x.shape[-1])
    return scores.softmax(-1) @ (x @ W_value.T) @ W_output.T


def all_in_one_small_scale(x, W_query, W_key, W_value, W_output, heads):
    scores = (x @ W_query.T) @ (x @ W_key.T).mT
    weights = (scores / math.sqrt(x.shape[-1] / heads)).softmax(-1)
    return weights @ (x @ W_value.T) @ W_output.T


def scores_summed(x, W_query, W_key, W_value, W_output, heads):
    """Legacy code adds the heads' scores before one softmax."""
    return with_heads(bend=lambda s: s.sum(1, keepdim=True))(
        x, W_query, W_key, W_value, W_output, heads
    )


def legacy_axis(x, W_query, W_key, W_value, W_output, heads):
    """`F.softmax(scores)` without `dim` takes axis 1 of four."""
    return with_heads(axis=1)(x, W_query, W_key, W_value, W_output, heads)


def output_per_head(x, W_query, W_key, W_value, W_output, heads):
    D = x.shape[-1] // heads
    split = with_heads(merge=lambda y: y, output=lambda y, W: y)(
        x, W_query, W_key, W_value, W_output, heads
    )
    return merge_heads(split @ W_output[:D, :D].T)


def with_residual(x, *rest):
    return x + RIGHT(x, *rest)


def normalised(x, *rest):
    return F.layer_norm(RIGHT(x, *rest), x.shape[-1:])


def first_query(x, *rest):
    return RIGHT(x, *rest)[:, :1].expand_as(x)


def across_the_batch(x, W_query, W_key, W_value, W_output, heads):
    flat = x.flatten(0, 1)[None]
    output = RIGHT(flat, W_query, W_key, W_value, W_output, heads)
    return output.view_as(x)


def batch_second(x, *rest):
    """nn.MultiheadAttention without batch_first=True."""
    return RIGHT(x.transpose(0, 1), *rest).transpose(0, 1)


def ready_made(x, W_query, W_key, W_value, W_output, heads):
    query, key, value = (
        split_heads(x @ W.T, heads) for W in (W_query, W_key, W_value)
    )
    looked = F.scaled_dot_product_attention(query, key, value)
    return merge_heads(looked) @ W_output.T


def torchs_module(x, W_query, W_key, W_value, W_output, heads):
    module = nn.MultiheadAttention(
        x.shape[-1], heads, bias=False, batch_first=True, dtype=x.dtype
    )
    module.in_proj_weight.data = torch.cat([W_query, W_key, W_value])
    module.out_proj.weight.data = W_output
    return module(x, x, x)[0]


def own_weights(x, W_query, W_key, W_value, W_output, heads):
    layer = nn.Linear(x.shape[-1], x.shape[-1], bias=False).to(x.dtype)
    return RIGHT(x, W_query, W_key, W_value, layer.weight, heads)


def dropped(x, *rest):
    return with_heads(then=lambda w: F.dropout(w, 0.1))(x, *rest)


def overflowing(x, W_query, W_key, W_value, W_output, heads):
    query, key, value = (
        split_heads(x @ W.T, heads) for W in (W_query, W_key, W_value)
    )
    powers = (query @ key.mT * query.shape[-1] ** -0.5).exp()
    weights = powers / powers.sum(-1, keepdim=True)
    return merge_heads(weights @ value) @ W_output.T


# Shared keys


def group_of(index):
    """Return grouped attention in which a function of h names the group."""

    def answer(query, key, value):
        H, G = query.shape[1], key.shape[1]
        which = [index(h, H, G) for h in range(H)]
        return weighed(query, key[:, which], value[:, which])

    return answer


def broadcast_wrongly(query, key, value):
    """The axis of heads in a group comes before that of groups."""
    split = query.unflatten(1, (-1, key.shape[1]))
    return weighed(
        split,
        key[:, None],
        value[:, None],
        scale=lambda D, H: query.shape[-1] ** -0.5,
    ).flatten(1, 2)


def values_of_own_head(query, key, value):
    each = query.shape[1] // key.shape[1]
    keys = key.repeat_interleave(each, dim=1)
    return weighed(query, keys, value.repeat(1, each, 1, 1))


def mean_over_shared(query, key, value):
    return with_groups(
        lambda x, H: x.mean(1, keepdim=True).repeat(1, H, 1, 1),
        lambda x, H: x.mean(1, keepdim=True).repeat(1, H, 1, 1),
    )(query, key, value)


def all_groups_at_once(query, key, value):
    """Every head looks at the keys of all groups."""
    return weighed(
        query, key.flatten(1, 2)[:, None], value.flatten(1, 2)[:, None]
    )


def one_head_each(query, key, value):
    each = query.shape[1] // key.shape[1]
    return with_groups()(query[:, ::each], key, value)


def first_head_for_group(query, key, value):
    each = query.shape[1] // key.shape[1]
    first = query[:, ::each].repeat_interleave(each, dim=1)
    return with_groups()(first, key, value)


def unshared(query, key, value):
    return weighed(query, key, value)


def repeated_too_often(query, key, value):
    G = key.shape[1]
    keys, values = (x.repeat_interleave(G, dim=1) for x in (key, value))
    return weighed(query, keys, values)


def uniform_by_hand(query, key, value):
    each = query.shape[1] // key.shape[1]
    mean = value.mean(2, keepdim=True).repeat_interleave(each, dim=1)
    return mean.expand(-1, -1, query.shape[2], -1)


def interleaved_along_keys(query, key, value):
    """repeat_interleave without `dim=1` in mind: the keys are doubled."""
    each = query.shape[1] // key.shape[1]
    keys, values = (x.repeat_interleave(each, dim=2) for x in (key, value))
    return with_groups(
        lambda x, H: x.repeat(1, H // x.shape[1], 1, 1),
        lambda x, H: x.repeat(1, H // x.shape[1], 1, 1),
    )(query, keys, values)


def unstable(query, key, value):
    each = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(each, dim=1) for x in (key, value))
    powers = (query @ key.mT * query.shape[-1] ** -0.5).exp()
    return powers / powers.sum(-1, keepdim=True) @ value


def sdpa_grouped(query, key, value):
    return F.scaled_dot_product_attention(query, key, value, enable_gqa=True)


ANSWERS = {
    "check_split_heads": (
        *any_answer(checks.check_split_heads),
        Wrong("view-without-transpose", "one `view` to the shape that is "
              "wanted (TorchCode)", "the shape", split_viewed),
        Wrong("interleaved", "`(d h)` for `(h d)` in einops", "the shape",
              split_einops_swapped),
        Wrong("heads-first", "heads stacked on axis 0", "each head",
              lambda x, H: torch.stack(
                  [p for p in x.split(x.shape[-1] // H, dim=-1)])),
        Wrong("heads-first", "chunked along the wrong name of the axis",
              "each head", split_along_positions),
        Wrong("interleaved", "a stride for a block", "one head",
              split_strided),
        Wrong("untransposed", "the transpose is forgotten", "the numbers",
              lambda x, H: x.reshape(*x.shape[:2], H, x.shape[-1] // H)),
        Wrong("heads-into-batch", "d2l's transpose_qkv returns (B·H, T, D)",
              "a batch of one", lambda x, H: split_heads(x, H).reshape(
                  -1, x.shape[1], x.shape[-1] // H)),
        Wrong("numbers", "the scale is put here, and is that of the heads",
              "one head", split_scaled),
        Wrong("numbers", "windows that overlap", "one head", split_by_unfold),
        Wrong("numbers", "an off-by-one in the order of heads", "one head",
              split_rotated),
        Wrong("numbers", "heads counted from 1 (the book by rasbt numbers "
              "heads from 1)", "all but one", lambda x, H: torch.stack(
                  [split_heads(x, H)[:, min(h + 1, H - 1)]
                   for h in range(H)], 1)),
        Wrong("numbers", "softmax of the features", "the shape",
              split_softmaxed),
        Wrong("numbers", "`x[0]` for a batch", "a batch of one",
              split_first_of_batch),
        Wrong("numbers", "only the last position is looked at",
              "one position", split_last_position),
        Wrong("numbers", "columns flipped", "one column a head",
              split_columns_flipped),
        Wrong("type", "`chunk` alone gives a tuple", "each head",
              lambda x, H: x.chunk(H, dim=-1)),
        Wrong("shape", "the first head instead of all", "the first head",
              lambda x, H: split_heads(x, H)[:, 0]),
        Wrong("copies", "`expand` for a split", "one head",
              lambda x, H: x[:, None].expand(-1, H, -1, -1)),
    ),
    "check_merge_heads": (
        *any_answer(checks.check_merge_heads),
        Wrong("view-without-transpose", "`.contiguous().view` straight away "
              "(TorchCode)", "the shape", merge_viewed),
        Wrong("view-without-transpose", "transposed there and back",
              "the shape", merge_transposed_twice),
        Wrong("one-below-the-other", "cat along time", "one head",
              merge_along_time),
        Wrong("interleaved", "stacked on the last axis", "the shape",
              merge_in_turns),
        Wrong("interleaved", "`b t (d h)` in einops", "one column a head",
              lambda x: x.permute(0, 2, 3, 1).reshape(
                  len(x), x.shape[2], -1)),
        Wrong("not-merged", "the last step is forgotten", "the numbers",
              lambda x: x.permute(0, 2, 1, 3)),
        Wrong("numbers", "divided by the number of heads", "one head",
              merge_scaled),
        Wrong("shape", "the strongest head", "one head", merge_max),
        Wrong("shape", "the last head", "one head", merge_last),
        Wrong("numbers", "an off-by-one in the order of heads", "one head",
              merge_rotated),
        Wrong("numbers", "the mean in every place", "the width",
              merge_mean_repeated),
        Wrong("numbers", "columns flipped", "one column a head",
              merge_columns_flipped),
        Wrong("shape", "features before positions", "the numbers",
              merge_for_time),
        Wrong("summed", "`einsum('bhtd->btd')`", "one head",
              lambda x: torch.einsum("bhtd->btd", x)),
        Wrong("shape", "a single long row", "one position",
              lambda x: merge_heads(x).flatten(1)),
        Wrong("type", "a list of heads", "each head",
              lambda x: list(x.unbind(1))),
    ),
    "check_multi_head": (
        *any_answer(checks.check_multi_head),
        Wrong("scale-by-model-width", "C ** -0.5 (karpathy/ng-video-lecture, "
              "pull request 6)", "one head", karpathys_scale),
        Wrong("scale-by-heads", "1/√H (tenstorrent/tt-metal PR 56789)",
              "H = D", scaled_by_heads),
        Wrong("split-and-merge-by-view", "view at both ends: the shapes fit",
              "one head", viewed_at_both_ends),
        Wrong("merge-by-view", "`.contiguous().view` before the transpose",
              "one head", viewed_at_the_end),
        Wrong("attention-among-heads", "the transpose is forgotten twice",
              "the shape", among_heads),
        Wrong("no-attention", "W_o(W_q(x)), which TorchCode's check of "
              "grouped heads lets pass", "the shape", queries_only),
        Wrong("values-only", "V only (TorchCode's cache check lets it pass)",
              "one position", values_only),
        Wrong("uniform", "weights of 1/T (TorchLeet's check lets them pass)",
              "one position", mean_of_values),
        Wrong("no-output-projection", "W_o forgotten", "the shape",
              without_last_matrix),
        Wrong("one-head", "heads is not used", "one head", all_in_one),
        Wrong("numbers", "heads are used for the scale alone", "one head",
              all_in_one_small_scale),
        Wrong("numbers", "the heads' scores are summed", "one head",
              scores_summed),
        Wrong("softmax-over-heads", "softmax without `dim`", "the shape",
              legacy_axis),
        Wrong("numbers", "one block of W_output for every head", "one head",
              output_per_head),
        Wrong("numbers", "the residual connection is already there",
              "nothing", with_residual),
        Wrong("numbers", "layer normalisation is already there", "the shape",
              normalised),
        Wrong("numbers", "only the first position asks", "one position",
              first_query),
        Wrong("numbers", "batch and positions flattened before attention",
              "a batch of one", across_the_batch),
        Wrong("numbers", "batch_first forgotten: the axes of batch and "
              "positions have changed places", "one of each", batch_second),
        Wrong("ready-made", "F.scaled_dot_product_attention", "everything",
              ready_made),
        Wrong("ready-made", "nn.MultiheadAttention", "everything",
              torchs_module),
        Wrong("nan", "exp without subtracting the maximum: it overflows",
              "small scores", overflowing),
        Wrong("random", "a fresh nn.Linear for W_output", "the shape",
              own_weights),
        Wrong("random", "dropout on the weights, always on", "the mean",
              dropped),
        Wrong("numbers", "softmax twice", "one position", with_heads(
            then=lambda w: w.softmax(-1))),
        Wrong("numbers", "scaled after the softmax", "D = 1", with_heads(
            scale=lambda D, H: 1.0, then=lambda w: w / math.sqrt(7))),
        Wrong("numbers", "multiplied by √D: ** 0.5", "D = 1", with_heads(
            scale=lambda D, H: D**0.5)),
        Wrong("causal", "a causal mask out of habit", "one position",
              with_heads(bend=past)),
        Wrong("numbers", "each position is hidden from itself", "nothing",
              with_heads(bend=lambda s: s.masked_fill(
                  torch.eye(s.shape[-1], dtype=torch.bool), -30.0))),
        Wrong("numbers", "W_output before the heads are merged back",
              "one head", lambda x, Q, K, V, W, H: RIGHT(
                  x, Q, K, W @ V, torch.eye(len(W), dtype=x.dtype), H)),
        Wrong("numbers", "hard attention: the best key alone",
              "one position", with_heads(then=lambda w: F.one_hot(
                  w.argmax(-1), w.shape[-1]).to(w.dtype))),
    ),
    "check_grouped_query": (
        *any_answer(checks.check_grouped_query),
        Wrong("repeat", "`repeat` for `repeat_interleave` (TorchLeet lets it "
              "pass)", "one group", group_of(lambda h, H, G: h % G)),
        Wrong("repeat", "the axes of the broadcast are swapped",
              "one group", broadcast_wrongly),
        Wrong("repeat-values", "the keys are right and the values are not",
              "one group", values_of_own_head),
        Wrong("first-group-only", "a group for all", "one group",
              group_of(lambda h, H, G: 0)),
        Wrong("backwards", "counted from the end", "one group",
              group_of(lambda h, H, G: G - 1 - h * G // H)),
        Wrong("groups-averaged", "the mean over groups, as in converting a "
              "checkpoint to multi-query", "one group", mean_over_shared),
        Wrong("numbers", "one softmax over the keys of all groups",
              "one group", all_groups_at_once),
        Wrong("shape", "one head of each group", "as many groups as heads",
              one_head_each),
        Wrong("numbers", "the group's first head asks for all",
              "as many groups as heads", first_head_for_group),
        Wrong("error", "keys and values are not repeated at all",
              "one group", unshared),
        Wrong("error", "repeated G times, not H / G times", "H = G²",
              repeated_too_often),
        Wrong("uniform", "weights of 1/S (TorchLeet lets them pass)",
              "one key", uniform_by_hand),
        Wrong("repeat", "repeated along the keys, then `repeat`", "one group",
              interleaved_along_keys),
        Wrong("nan", "exp without subtracting the maximum", "small scores",
              unstable),
        Wrong("ready-made", "enable_gqa=True", "everything", sdpa_grouped),
        Wrong("scale-by-model-width", "1/√(H·D) (TorchLeet lets it pass)",
              "one head", with_groups(
                  scale=lambda D, H: 1 / math.sqrt(D * H))),
        Wrong("no-scale", "no scale at all (TorchLeet lets it pass)",
              "D = 1", with_groups(scale=lambda D, H: 1)),
        Wrong("numbers", "softmax twice", "one key",
              with_groups(then=lambda w: w.softmax(-1))),
        Wrong("numbers", "the neighbours' group, one off", "one group",
              group_of(lambda h, H, G: ((h + 1) * G // H) % G)),
        Wrong("numbers", "scaled by the number of keys", "S = D",
              lambda q, k, v: with_groups(
                  scale=lambda D, H: k.shape[2] ** -0.5)(q, k, v)),
    ),
}  # fmt: skip
