"""Wrong answers to the exercises of chapters/03_luong."""

import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import luong as checks
from wrong_answers import Wrong, make
from wrong_answers.make import Answers, collect_answers

SDPA = F.scaled_dot_product_attention


def joined(query, key):
    t, s = query.shape[1], key.shape[1]
    left = query.unsqueeze(2).expand(-1, -1, s, -1)
    right = key.unsqueeze(1).expand(-1, t, -1, -1)
    return torch.cat([left, right], dim=-1)


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


def bell(centre, places, reach):
    away = places_of(centre, places) - centre[..., None]
    return torch.exp(-2 * away**2 / max(reach, 1) ** 2)


CONCAT = Answers(checks.check_concat_scores, make.detached, make.in_double)
CONCAT += (
    Wrong(
        "numbers",
        "v is brought to length 1, as in weight normalisation",
        "the order of the scores",
        lambda q, k, W, v: torch.tanh(joined(q, k) @ W.T) @ F.normalize(v, dim=0),
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


@CONCAT.wrong("numbers", "the shape")
def interleaved(query, key, W, v):
    """repeat for repeat_interleave when the pairs are made."""
    t, s = query.shape[1], key.shape[1]
    left = query.repeat(1, s, 1).unflatten(1, (t, s))
    right = key.repeat(1, t, 1).unflatten(1, (t, s))
    return torch.tanh(F.linear(torch.cat([left, right], -1), W)) @ v


@CONCAT.wrong("error", "nothing")
def along_time(query, key, W, v):
    """The pairs are joined along time."""
    return torch.tanh(torch.cat([query, key], dim=1) @ W.T) @ v


@CONCAT.wrong("error", "the shape, where T = S")
def same_step(query, key, W, v):
    """The new axis is forgotten, and T = S in the toy example."""
    pairs = torch.cat([query, key], dim=-1)
    return (torch.tanh(pairs @ W.T) @ v)[:, None].expand(-1, len(pairs[0]), -1)


@CONCAT.wrong("numbers", "T = 1, which a decoder uses")
def one_query(query, key, W, v):
    """One decoder step is all that a decoder ever sees at a time."""
    wide = query[:, :1].expand(-1, key.shape[1], -1)
    scores = torch.tanh(torch.cat([wide, key], dim=-1) @ W.T) @ v
    return scores[:, None].expand(-1, query.shape[1], -1)


@CONCAT.wrong("numbers", "the order of the scores")
def means(query, key, W, v):
    """Mean for sum over the alignment axis."""
    return (torch.tanh(joined(query, key) @ W.T) * v).mean(-1)


@CONCAT.wrong("numbers", "the sign of what is bent")
def tanh_twice(query, key, W, v):
    """tanh in the layer and again in the score."""
    return torch.tanh(torch.tanh(joined(query, key) @ W.T)) @ v


@CONCAT.wrong("shape", "every number")
def keeps_an_axis(query, key, W, v):
    """v is made a column, as in nn.Linear(A, 1)."""
    return torch.tanh(joined(query, key) @ W.T) @ v[:, None]


@CONCAT.wrong("numbers", "a batch of one")
def of_the_batch(query, key, W, v):
    """Tried on a batch of one."""
    key = key[:1].expand(query.shape[0], -1, -1)
    return torch.tanh(joined(query, key) @ W.T) @ v


@CONCAT.wrong("numbers", "the shape")
def gelu_for_tanh(query, key, W, v):
    """GELU is what everybody uses now."""
    return F.gelu(joined(query, key) @ W.T) @ v


@CONCAT.wrong("detached", "every number forwards")
def query_cut_off(query, key, W, v):
    """The projected queries are made without a graph."""
    with torch.no_grad():
        of_query = query @ W[:, : query.shape[-1]].T
    of_key = key @ W[:, query.shape[-1] :].T
    return torch.tanh(of_query[:, :, None] + of_key[:, None]) @ v


GENERAL = Answers(checks.check_general_scores, make.detached, make.in_double)
GENERAL += (
    Wrong(
        "numbers",
        "the scale of scaled dot-product attention, without the root",
        "the order of the scores",
        lambda q, k, W: q @ W @ k.mT / q.shape[-1],
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


@GENERAL.wrong("numbers", "the shape")
def viewed(query, key, W):
    """The projected keys are reshaped to silence an error about shapes."""
    keys = (key @ W.T).reshape(key.shape[0], W.shape[0], key.shape[1])
    return query @ keys


@GENERAL.wrong("numbers", "T = 1, which a decoder uses")
def first_query(query, key, W):
    """One decoder step is all that a decoder ever sees at a time."""
    scores = torch.einsum("bd,de,bse->bs", query[:, 0], W, key)
    return scores[:, None].expand(-1, query.shape[1], -1)


@GENERAL.wrong("shape", "T = S = 1")
def pair_by_pair(query, key, W):
    """Query and key are paired by place."""
    return ((query @ W) * key).sum(-1)


@GENERAL.wrong("numbers", "a batch of one")
def across_batches(query, key, W):
    """Two names for the batch in einsum."""
    return torch.einsum("btd,de,cse->bts", query, W, key)


@GENERAL.wrong("numbers", "the shape, where the widths agree")
def concat_style(query, key, W):
    """concat is taken for general, with W for the query."""
    return torch.tanh((query @ W)[:, :, None] + key[:, None]).sum(-1)


@GENERAL.wrong("detached", "every number, and two gradients of three")
def with_frozen_matrix(query, key, W):
    """The matrix is taken for a constant."""
    return query @ W.detach() @ key.mT


@GENERAL.wrong("numbers", "widths that differ")
def symmetric(query, key, W):
    """A similarity ought to be symmetric."""
    if W.shape[0] == W.shape[1]:
        W = (W + W.T) / 2
    return query @ W @ key.mT


@GENERAL.wrong("numbers", "every weight that comes of it")
def shifted(query, key, W):
    """The shift by the largest score, which belongs to the softmax."""
    scores = query @ W @ key.mT
    return scores - scores.amax(-1, keepdim=True)


@GENERAL.wrong("numbers", "scores of ordinary size")
def capped(query, key, W):
    """clamp against an overflow."""
    return (query @ W @ key.mT).clamp(-1e4, 1e4)


WINDOW = Answers(checks.check_local_window)
WINDOW += (
    Wrong(
        "numbers",
        "a slice of the rounded centre: a start below 0 counts from the end",
        "whole centres in the middle",
        slices(lambda c, r: round(c) - r, lambda c, r: round(c) + r + 1),
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
        "dtype",
        "the Gaussian is taken for the window",
        "where it is highest",
        bell,
    ),
    Wrong(
        "numbers",
        "True everywhere",
        "windows wider than the sentence",
        lambda c, S, r: torch.ones(*c.shape, S, dtype=torch.bool),
    ),
)


@WINDOW.wrong("numbers", "windows that are not empty")
def never_empty(centre, places, reach):
    """A softmax needs at least one key, so the nearest is kept."""
    away = (places_of(centre, places) - centre[..., None]).abs()
    return (away <= reach) | (away == away.amin(-1, keepdim=True))


@WINDOW.wrong("numbers", "whole centres inside the sentence")
def around_the_nearest(centre, places, reach):
    """The window stands at the place nearest to the centre."""
    away = (places_of(centre, places) - centre[..., None]).abs()
    nearest = away.argmin(-1, keepdim=True)
    return (torch.arange(places) - nearest).abs() <= reach


@WINDOW.wrong("numbers", "whole centres away from the ends")
def nearest_ones(centre, places, reach):
    """The 2 reach + 1 nearest places are taken."""
    away = (places_of(centre, places) - centre[..., None]).abs()
    count = min(2 * reach + 1, places)
    best = away.topk(count, dim=-1, largest=False).indices
    return torch.zeros_like(away, dtype=torch.bool).scatter(-1, best, True)


@WINDOW.wrong("numbers", "the shape")
def fraction_of_sentence(centre, places, reach):
    """The sigmoid of the predicted centre is taken once more."""
    return checks.check_local_window.solution(
        centre.sigmoid() * (places - 1), places, reach
    )


@WINDOW.wrong("numbers", "the centre")
def bell_cut(centre, places, reach):
    """The Gaussian is cut at half its height."""
    return bell(centre, places, reach) > 0.5


@WINDOW.wrong("numbers", "centres in the middle")
def backwards_places(centre, places, reach):
    """Places are counted from the end."""
    return checks.check_local_window.solution(centre, places, reach).flip(-1)


@WINDOW.wrong("shape", "the first query")
def one_row(centre, places, reach):
    """One query is all that a decoder ever sees at a time."""
    return checks.check_local_window.solution(centre, places, reach)[:, 0]


@WINDOW.wrong("dtype", "every entry")
def integers(centre, places, reach):
    """1 and 0 for True and False."""
    return checks.check_local_window.solution(centre, places, reach).int()


@WINDOW.wrong("dtype", "every entry")
def as_floats(centre, places, reach):
    """1.0 and 0.0 for True and False."""
    return checks.check_local_window.solution(centre, places, reach).float()


@WINDOW.wrong("dtype", "what it does to scores")
def as_bias(centre, places, reach):
    """A bias of 0 and -inf, ready to be added."""
    seen = checks.check_local_window.solution(centre, places, reach)
    return torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)


DEPTH = Answers(checks.check_decoder_depth)
DEPTH += (
    Wrong(
        "numbers",
        "the number of computations is counted instead of the longest path",
        "its growth with the number of steps",
        lambda kind, T, L: T * (L + 2),
    ),
)


@DEPTH.wrong("numbers", "one layer")
def depth_times_layers(kind, T, L):
    """The path of one layer is taken L times."""
    return L * checks.check_decoder_depth.solution(kind, T, 1)


@DEPTH.wrong("numbers", "attention after the step")
def depth_without_context(kind, T, L):
    """The context vector is not counted as a computation."""
    return {"before": T * L + 1, "after": T + L, "feeding": T * (L + 1)}[kind]


@DEPTH.wrong("error", "nothing")
def depth_by_attribute(kind, T, L):
    """The kind is taken for a decoder."""
    return kind.depth


LAYER = Answers(checks.check_attention_fault, *make.DECISION)


@LAYER.wrong("always-right", "layers without a fault")
def layer_by_shapes(layer, states, memory, lengths):
    """Only shapes are tested, and they are always right."""
    vectors, weights = layer(states, memory, lengths)
    right = vectors.shape == states.shape
    return int(not (right and weights.shape[2] == memory.shape[1]))


@LAYER.wrong("numbers", "every other fault")
def layer_without_fifth(*inputs):
    """The columns are not tested."""
    found = checks.check_attention_fault.solution(*inputs)
    return found if found < 5 else 0


@LAYER.wrong("numbers", "faults of softmax and mask")
def layer_with_zero_memory(layer, states, memory, lengths):
    """The encoder states are set to zero, so that nothing else disturbs."""
    return checks.check_attention_fault.solution(
        lambda s, m, n: layer(s, torch.zeros_like(m), n),
        states,
        memory,
        lengths,
    )


FACTORS = Answers(checks.check_two_factors)


@FACTORS.wrong("numbers", "large effects, by luck")
def factors_of_three_seeds(error):
    """Three seeds are what papers use."""
    rng = torch.Generator().manual_seed(0)
    seeds = torch.randint(1000, (3,), generator=rng).tolist()

    def mean(score, order):
        return sum(error(score, order, n) for n in seeds) / 3

    base = mean("additive", "before")
    dot, after = mean("dot", "before"), mean("additive", "after")
    both = mean("dot", "after")
    if abs(both - dot - after + base) > 1:
        return 4
    return (abs(dot - base) > 1) + 2 * (abs(after - base) > 1)


@FACTORS.wrong("error", "nothing")
def factors_of_other_names(error):
    """The scores are called as in the paper."""
    return int(error("general", "before", 0) > error("dot", "before", 0))


@FACTORS.wrong("type", "the explanation")
def factors_as_pair(error):
    """A pair of truth values, one for each factor."""
    found = checks.check_two_factors.solution(error)
    return found in (1, 3), found in (2, 3)


@FACTORS.wrong("numbers", "differences due to one factor")
def factors_by_larger(error):
    """The factor with the larger effect is the explanation."""
    found = checks.check_two_factors.solution(error)
    return found if found < 3 else 1


@FACTORS.wrong("numbers", "differences in which the score has no effect")
def factors_without_score(error):
    """Only the order is changed."""
    found = checks.check_two_factors.solution(error)
    return 2 * (found in (2, 3))


ANSWERS = collect_answers(checks, vars())
