"""Wrong answers to the exercises of chapters/03_luong."""

import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import luong as checks
from wrong_answers import Wrong
from wrong_answers.common import detached, single, usual

SDPA = F.scaled_dot_product_attention


def other_side(query, key, W):
    keys = F.linear(key, W.T)
    return torch.bmm(query, keys.transpose(1, 2))


def as_linear(query, key, W):
    return F.linear(query, W) @ key.mT


def viewed(query, key, W):
    keys = (key @ W.T).reshape(key.shape[0], W.shape[0], key.shape[1])
    return query @ keys


def first_query(query, key, W):
    scores = torch.einsum("bd,de,bse->bs", query[:, 0], W, key)
    return scores[:, None].expand(-1, query.shape[1], -1)


def pair_by_pair(query, key, W):
    return ((query @ W) * key).sum(-1)


def across_batches(query, key, W):
    return torch.einsum("btd,de,cse->bts", query, W, key)


def concat_style(query, key, W):
    return torch.tanh((query @ W)[:, :, None] + key[:, None]).sum(-1)


def with_frozen_matrix(query, key, W):
    return query @ W.detach() @ key.mT


def symmetric(query, key, W):
    if W.shape[0] == W.shape[1]:
        W = (W + W.T) / 2
    return query @ W @ key.mT


def shifted(query, key, W):
    scores = query @ W @ key.mT
    return scores - scores.amax(-1, keepdim=True)


def capped(query, key, W):
    return (query @ W @ key.mT).clamp(-1e4, 1e4)


def joined(query, key):
    t, s = query.shape[1], key.shape[1]
    left = query.unsqueeze(2).expand(-1, -1, s, -1)
    right = key.unsqueeze(1).expand(-1, t, -1, -1)
    return torch.cat([left, right], dim=-1)


def interleaved(query, key, W, v):
    t, s = query.shape[1], key.shape[1]
    left = query.repeat(1, s, 1).unflatten(1, (t, s))
    right = key.repeat(1, t, 1).unflatten(1, (t, s))
    return torch.tanh(F.linear(torch.cat([left, right], -1), W)) @ v


def key_then_query(query, key, W, v):
    pairs = joined(query, key)
    queries, keys = pairs.split((query.shape[-1], key.shape[-1]), dim=-1)
    return torch.tanh(torch.cat([keys, queries], dim=-1) @ W.T) @ v


def keys_first_columns(query, key, W, v):
    wide = key.shape[-1]
    of_keys = key @ W[:, :wide].T
    of_queries = query @ W[:, wide:].T
    return torch.tanh(of_queries[:, :, None] + of_keys[:, None]) @ v


def along_time(query, key, W, v):
    return torch.tanh(torch.cat([query, key], dim=1) @ W.T) @ v


def same_step(query, key, W, v):
    pairs = torch.cat([query, key], dim=-1)
    return (torch.tanh(pairs @ W.T) @ v)[:, None].expand(-1, len(pairs[0]), -1)


def one_query(query, key, W, v):
    wide = query[:, :1].expand(-1, key.shape[1], -1)
    scores = torch.tanh(torch.cat([wide, key], dim=-1) @ W.T) @ v
    return scores[:, None].expand(-1, query.shape[1], -1)


def means(query, key, W, v):
    return (torch.tanh(joined(query, key) @ W.T) * v).mean(-1)


def tanh_twice(query, key, W, v):
    return torch.tanh(torch.tanh(joined(query, key) @ W.T)) @ v


def keeps_an_axis(query, key, W, v):
    return torch.tanh(joined(query, key) @ W.T) @ v[:, None]


def of_the_batch(query, key, W, v):
    key = key[:1].expand(query.shape[0], -1, -1)
    return torch.tanh(joined(query, key) @ W.T) @ v


def gelu_for_tanh(query, key, W, v):
    return F.gelu(joined(query, key) @ W.T) @ v


def query_cut_off(query, key, W, v):
    with torch.no_grad():
        of_query = query @ W[:, : query.shape[-1]].T
    of_key = key @ W[:, query.shape[-1] :].T
    return torch.tanh(of_query[:, :, None] + of_key[:, None]) @ v


def slices(begin, end):
    """Return windows cut out by a slice from begin(c, r) to end(c, r)."""

    def answer(centre, places, reach):
        seen = torch.zeros(*centre.shape, places, dtype=torch.bool)
        for b, row in enumerate(centre.tolist()):
            for t, c in enumerate(row):
                seen[b, t, begin(c, reach) : end(c, reach)] = True
        return seen

    return answer


def places_of(centre, places):
    return torch.arange(places).to(centre.dtype)


def tested(test):
    """Return windows by a test of (places, centres, reach)."""
    return lambda centre, places, reach: test(
        places_of(centre, places), centre.unsqueeze(-1), reach
    )


def never_empty(centre, places, reach):
    away = (places_of(centre, places) - centre[..., None]).abs()
    return (away <= reach) | (away == away.amin(-1, keepdim=True))


def around_the_nearest(centre, places, reach):
    away = (places_of(centre, places) - centre[..., None]).abs()
    nearest = away.argmin(-1, keepdim=True)
    return (torch.arange(places) - nearest).abs() <= reach


def nearest_ones(centre, places, reach):
    away = (places_of(centre, places) - centre[..., None]).abs()
    count = min(2 * reach + 1, places)
    best = away.topk(count, dim=-1, largest=False).indices
    return torch.zeros_like(away, dtype=torch.bool).scatter(-1, best, True)


def bell(centre, places, reach):
    away = places_of(centre, places) - centre[..., None]
    return torch.exp(-2 * away**2 / max(reach, 1) ** 2)


def bell_cut(centre, places, reach):
    return bell(centre, places, reach) > 0.5


def fraction_of_sentence(centre, places, reach):
    return checks.check_local_window.solution(
        centre.sigmoid() * (places - 1), places, reach
    )


def backwards_places(centre, places, reach):
    return checks.check_local_window.solution(centre, places, reach).flip(-1)


def one_row(centre, places, reach):
    return checks.check_local_window.solution(centre, places, reach)[:, 0]


def integers(centre, places, reach):
    return checks.check_local_window.solution(centre, places, reach).int()


def as_floats(centre, places, reach):
    return checks.check_local_window.solution(centre, places, reach).float()


def as_bias(centre, places, reach):
    seen = checks.check_local_window.solution(centre, places, reach)
    return torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)


GENERAL = (
    *usual(checks.check_general_scores),
    detached(checks.check_general_scores.solution),
    single(checks.check_general_scores.solution),
    Wrong(
        "no-matrix",
        "the dot score, which comes first in the paper's list",
        "the shape, where the widths agree",
        lambda q, k, W: torch.bmm(q, k.mT),
    ),
    Wrong(
        "untransposed",
        "W is applied to the keys as x @ W",
        "a symmetric W",
        other_side,
    ),
    Wrong(
        "untransposed",
        "nn.Linear is used for the query, and it transposes",
        "a symmetric W",
        as_linear,
    ),
    Wrong(
        "untransposed",
        "einsum with W's letters in the wrong order",
        "a symmetric W",
        lambda q, k, W: torch.einsum("btd,ed,bse->bts", q, W, k),
    ),
    Wrong(
        "swapped-axes",
        "the result is read off with the letters of the keys first",
        "every number, turned",
        lambda q, k, W: torch.einsum("btd,de,bse->bst", q, W, k),
    ),
    Wrong(
        "numbers",
        "the projected keys are reshaped to silence an error about shapes",
        "the shape",
        viewed,
    ),
    Wrong(
        "numbers",
        "one decoder step is all that a decoder ever sees at a time",
        "T = 1, which a decoder uses",
        first_query,
    ),
    Wrong(
        "shape",
        "query and key are paired by place",
        "T = S = 1",
        pair_by_pair,
    ),
    Wrong(
        "numbers",
        "two names for the batch in einsum",
        "a batch of one",
        across_batches,
    ),
    Wrong(
        "numbers",
        "concat is taken for general, with W for the query",
        "the shape, where the widths agree",
        concat_style,
    ),
    Wrong(
        "detached",
        "the matrix is taken for a constant",
        "every number, and two gradients of three",
        with_frozen_matrix,
    ),
    Wrong(
        "numbers",
        "a similarity ought to be symmetric",
        "widths that differ",
        symmetric,
    ),
    Wrong(
        "numbers",
        "the shift by the largest score, which belongs to the softmax",
        "every weight that comes of it",
        shifted,
    ),
    Wrong(
        "numbers",
        "clamp against an overflow",
        "scores of ordinary size",
        capped,
    ),
    Wrong(
        "scaled",
        "scaled dot-product attention, from memory",
        "the order of the scores",
        lambda q, k, W: (q / q.shape[-1] ** 0.5) @ W @ k.mT,
    ),
    Wrong(
        "numbers",
        "the scale of scaled dot-product attention, without the root",
        "the order of the scores",
        lambda q, k, W: q @ W @ k.mT / q.shape[-1],
    ),
    Wrong(
        "normalised",
        "attention is a softmax",
        "the order of the scores",
        lambda q, k, W: F.softmax(q @ W @ k.mT, dim=2),
    ),
    Wrong(
        "tanh",
        "tanh is copied over from chapter 2",
        "small inputs, nearly",
        lambda q, k, W: torch.tanh(q @ W) @ k.mT,
    ),
    Wrong(
        "numbers",
        "tanh is copied over from chapter 2, round the score",
        "the order of the scores",
        lambda q, k, W: torch.tanh(q @ W @ k.mT),
    ),
    Wrong(
        "ready-made",
        "attention is one call in PyTorch",
        "that something attends",
        lambda q, k, W: SDPA(q @ W, k, k),
    ),
    Wrong(
        "random",
        "nn.Bilinear has a matrix of its own",
        "the shape",
        lambda q, k, W: (
            nn.Linear(*reversed(W.shape), dtype=q.dtype)(k)
            .mT.unsqueeze(1)
            .mul(q.unsqueeze(-1))
            .sum(2)
        ),
    ),
    Wrong(
        "numbers",
        "zeros of the right shape",
        "the shape and the dtype",
        lambda q, k, W: q.new_zeros(len(q), q.shape[1], k.shape[1]),
    ),
)

CONCAT = (
    *usual(checks.check_concat_scores),
    detached(checks.check_concat_scores.solution),
    single(checks.check_concat_scores.solution),
    Wrong(
        "key-first",
        "torch.cat in the order memory, state",
        "the shape, even where the widths differ",
        key_then_query,
    ),
    Wrong(
        "key-first",
        "W's first columns are given to the key",
        "the shape, even where the widths differ",
        keys_first_columns,
    ),
    Wrong(
        "cut-in-half",
        "W is split in two at its middle",
        "equal widths",
        lambda q, k, W, v: (
            torch.tanh(
                (q @ W[:, : W.shape[1] // 2].T).unsqueeze(2)
                + (k @ W[:, W.shape[1] // 2 :].T).unsqueeze(1)
            )
            @ v
        ),
    ),
    Wrong(
        "numbers",
        "repeat for repeat_interleave when the pairs are made",
        "the shape",
        interleaved,
    ),
    Wrong(
        "error",
        "the pairs are joined along time",
        "nothing",
        along_time,
    ),
    Wrong(
        "error",
        "the new axis is forgotten, and T = S in the toy example",
        "the shape, where T = S",
        same_step,
    ),
    Wrong(
        "numbers",
        "one decoder step is all that a decoder ever sees at a time",
        "T = 1, which a decoder uses",
        one_query,
    ),
    Wrong(
        "numbers",
        "mean for sum over the alignment axis",
        "the order of the scores",
        means,
    ),
    Wrong(
        "numbers",
        "tanh in the layer and again in the score",
        "the sign of what is bent",
        tanh_twice,
    ),
    Wrong(
        "shape",
        "v is made a column, as in nn.Linear(A, 1)",
        "every number",
        keeps_an_axis,
    ),
    Wrong(
        "numbers",
        "tried on a batch of one",
        "a batch of one",
        of_the_batch,
    ),
    Wrong(
        "numbers",
        "gelu is what everybody uses now",
        "the shape",
        gelu_for_tanh,
    ),
    Wrong(
        "relu-for-tanh",
        'keon/seq2seq PR 31: "Bahdanau" with relu',
        "the shape",
        lambda q, k, W, v: F.relu(F.linear(joined(q, k), W)) @ v,
    ),
    Wrong(
        "no-tanh",
        "the tanh is easily overlooked in equation 8",
        "small inputs, nearly",
        lambda q, k, W, v: joined(q, k) @ (v @ W),
    ),
    Wrong(
        "tanh-too-late",
        "a bracket closes too late",
        "the sign of the score",
        lambda q, k, W, v: torch.tanh(F.linear(joined(q, k), W) @ v),
    ),
    Wrong(
        "detached",
        "the projected queries are made without a graph",
        "every number forwards",
        query_cut_off,
    ),
    Wrong(
        "normalised",
        "attention is a softmax",
        "the order of the scores",
        lambda q, k, W, v: F.softmax(
            torch.tanh(joined(q, k) @ W.T) @ v, dim=-1
        ),
    ),
    Wrong(
        "numbers",
        "v is brought to length 1, as in weight normalisation",
        "the order of the scores",
        lambda q, k, W, v: (
            torch.tanh(joined(q, k) @ W.T) @ F.normalize(v, dim=0)
        ),
    ),
    Wrong(
        "ready-made",
        "attention is one call in PyTorch",
        "that something attends",
        lambda q, k, W, v: SDPA(
            q @ W[:, : q.shape[-1]].T, k @ W[:, q.shape[-1] :].T, k
        ),
    ),
)

WINDOW = (
    *usual(checks.check_local_window),
    Wrong(
        "strict",
        "< for <=",
        "every place but the edges",
        tested(lambda s, c, r: (s > c - r) & (s < c + r)),
    ),
    Wrong(
        "half-open",
        "the right edge is left out, as in range",
        "every place but one",
        tested(lambda s, c, r: (c - r <= s) & (s < c + r)),
    ),
    Wrong(
        "numbers",
        "a slice of the rounded centre: a start below 0 counts from the end",
        "whole centres in the middle",
        slices(lambda c, r: round(c) - r, lambda c, r: round(c) + r + 1),
    ),
    Wrong(
        "truncated",
        "a slice around int(centre), its edges held at 0",
        "whole centres, anywhere",
        slices(
            lambda c, r: max(0, int(c) - r),
            lambda c, r: max(0, int(c) + r + 1),
        ),
    ),
    Wrong(
        "rounded",
        "an index has to be an integer",
        "whole centres",
        tested(lambda s, c, r: (s - torch.round(c)).abs() <= r),
    ),
    Wrong(
        "truncated",
        "an index has to be an integer, and .int() makes one",
        "whole centres",
        tested(lambda s, c, r: (s - c.int()).abs() <= r),
    ),
    Wrong(
        "numbers",
        "the centre is rounded up",
        "whole centres",
        tested(lambda s, c, r: (s - c.ceil()).abs() <= r),
    ),
    Wrong(
        "numbers",
        "the window is widened to whole places on either side",
        "whole centres",
        tested(lambda s, c, r: ((c - r).floor() <= s) & (s <= (c + r).ceil())),
    ),
    Wrong(
        "clamped",
        "a centre outside the sentence seems to make no sense",
        "centres inside it",
        tested(lambda s, c, r: (s - torch.clamp(c, 0, len(s) - 1)).abs() <= r),
    ),
    Wrong(
        "numbers",
        "a softmax needs at least one key, so the nearest is kept",
        "windows that are not empty",
        never_empty,
    ),
    Wrong(
        "numbers",
        "the window stands at the place nearest to the centre",
        "whole centres inside the sentence",
        around_the_nearest,
    ),
    Wrong(
        "numbers",
        "the 2 reach + 1 nearest places are taken",
        "whole centres away from the ends",
        nearest_ones,
    ),
    Wrong(
        "wrapped",
        "remainders, as with torch.roll",
        "centres away from the ends",
        lambda c, S, r: (
            ((places_of(c, S) - c[..., None] + S / 2) % S - S / 2).abs() <= r
        ),
    ),
    Wrong(
        "only-before",
        "`window` of later chapters looks back, this one to either side",
        "the places before the centre",
        tested(lambda s, c, r: (s <= c) & (c - s <= r)),
    ),
    Wrong(
        "no-left-edge",
        "the distance keeps its sign",
        "the right edge",
        tested(lambda s, c, r: s - c <= r),
    ),
    Wrong(
        "no-right-edge",
        "the distance keeps its sign, counted the other way",
        "the left edge",
        tested(lambda s, c, r: c - s <= r),
    ),
    Wrong(
        "half-reach",
        "the window is `reach` wide in all",
        "the centre",
        tested(lambda s, c, r: 2 * (s - c).abs() <= r),
    ),
    Wrong(
        "inverted",
        "True is taken to mean: hide this place",
        "the edges, turned round",
        tested(lambda s, c, r: ~((s - c).abs() <= r)),
    ),
    Wrong(
        "step-for-centre",
        "the monotonic window, which needs no centre",
        "centres that follow the steps",
        lambda c, S, r: (
            (torch.arange(S) - torch.arange(c.shape[1])[:, None])
            .abs()
            .expand(len(c), -1, -1)
            <= r
        ),
    ),
    Wrong(
        "numbers",
        "the sigmoid of the predicted centre is taken once more",
        "the shape",
        fraction_of_sentence,
    ),
    Wrong(
        "dtype",
        "the Gaussian is taken for the window",
        "where it is highest",
        bell,
    ),
    Wrong(
        "numbers",
        "the Gaussian is cut at half its height",
        "the centre",
        bell_cut,
    ),
    Wrong(
        "numbers",
        "places are counted from the end",
        "centres in the middle",
        backwards_places,
    ),
    Wrong(
        "counts-from-one",
        "the paper counts words from 1",
        "the width",
        tested(lambda s, c, r: (s + 1 - c).abs() <= r),
    ),
    Wrong(
        "shape",
        "one query is all that a decoder ever sees at a time",
        "the first query",
        one_row,
    ),
    Wrong(
        "first-sequence",
        "tried on a batch of one",
        "a batch of one",
        lambda c, S, r: checks.check_local_window.solution(
            c[0].repeat(len(c), 1), S, r
        ),
    ),
    Wrong("dtype", "1 and 0 for True and False", "every entry", integers),
    Wrong("dtype", "1.0 and 0.0 for True and False", "every entry", as_floats),
    Wrong(
        "dtype",
        "a bias of 0 and -inf, ready to be added",
        "what it does to scores",
        as_bias,
    ),
    Wrong(
        "numbers",
        "True everywhere",
        "windows wider than the sentence",
        lambda c, S, r: torch.ones(*c.shape, S, dtype=torch.bool),
    ),
)

ANSWERS = {
    "check_concat_scores": CONCAT,
    "check_general_scores": GENERAL,
    "check_local_window": WINDOW,
}
