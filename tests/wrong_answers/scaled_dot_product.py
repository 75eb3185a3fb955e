"""Wrong answers to the exercises of chapters/04_scaled_dot_product."""

import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import scaled_dot_product as checks
from wrong_answers import Wrong, make
from wrong_answers.make import Answers, collect_answers

SDPA = F.scaled_dot_product_attention


def attention(query, key, value, mask, *, hide):
    scores = query / query.shape[-1] ** 0.5 @ key.mT
    return (scores if mask is None else hide(scores, mask)).softmax(-1) @ value


def by_root_of(size):
    """Return attention divided by the root of another size than D."""

    def answer(query, key, value, mask):
        factor = (query.shape[-1] / size(query, key)) ** 0.5
        return checks.check_attend.solution(query * factor, key, value, mask)

    return answer


WEIGHTS = Answers(checks.check_weights, make.detached, make.in_double)
WEIGHTS += (
    Wrong(
        "ready-made",
        "PyTorch's own, with the unit matrix as values",
        "every number",
        lambda q, k: SDPA(q, k, torch.eye(k.shape[-2]).expand(*k.shape[:-1], -1).to(q)),
    ),
)


@WEIGHTS.wrong("numbers", "a problem with as many keys as components")
def by_keys(query, key):
    """The root of the number of keys."""
    return (query / key.shape[-2] ** 0.5 @ key.mT).softmax(-1)


@WEIGHTS.wrong("numbers", "width 1")
def root_of_root(query, key):
    """Half of improved-diffusion's two fourth roots."""
    quarter = query.shape[-1] ** -0.25
    return (query * quarter @ key.mT).softmax(-1)


@WEIGHTS.wrong("nan", "scores of one size")
def stable_by_the_whole(query, key):
    """The maximum of all scores is subtracted, so that a row far below it
    underflows."""
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    e = (scores - scores.max()).exp()
    return e / e.sum(-1, keepdim=True)


@WEIGHTS.wrong("numbers", "two digits")
def softened(query, key):
    """An epsilon in the denominator, against division by zero."""
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    return e / (e.sum(-1, keepdim=True) + 1e-2)


@WEIGHTS.wrong("numbers", "every shape")
def cosine(query, key):
    """Cosines, which are products of unit vectors."""
    scores = F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).mT
    return scores.softmax(-1)


@WEIGHTS.wrong("numbers", "that near keys get more")
def distances(query, key):
    """Distances, as in kernel smoothing."""
    return (-torch.cdist(query.float(), key.float())).softmax(-1).to(query)


@WEIGHTS.wrong("numbers", "the favourite key")
def hard(query, key):
    """The hard lookup."""
    best = (query * query.shape[-1] ** -0.5 @ key.mT).argmax(-1)
    return F.one_hot(best, key.shape[-2]).to(query.dtype)


@WEIGHTS.wrong("numbers", "the order of the keys")
def logarithms(query, key):
    """log_softmax, copied from a loss."""
    return (query * query.shape[-1] ** -0.5 @ key.mT).log_softmax(-1)


@WEIGHTS.wrong("numbers", "one query")
def flattened(query, key):
    """One softmax for the whole table."""
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    return scores.flatten(-2).softmax(-1).view_as(scores)


@WEIGHTS.wrong("error", "two axes")
def old_transpose(query, key):
    """`.T`, which turns all axes."""
    return (query * query.shape[-1] ** -0.5 @ key.T).softmax(-1)


@WEIGHTS.wrong("detached", "every number forwards")
def key_frozen(query, key):
    """Keys taken as constants."""
    return checks.check_weights.solution(query, key.detach())


@WEIGHTS.wrong("error", "what lies in one piece")
def viewed_weights(query, key):
    """`view` on heads that are views already."""
    flat = [x.view(-1, *x.shape[-2:]) for x in (query, key)]
    weights = checks.check_weights.solution(*flat)
    return weights.view(*query.shape[:-1], key.shape[-2])


ATTEND = Answers(checks.check_attend, make.detached, make.in_double)
ATTEND += (
    Wrong(
        "numbers",
        "divided by √T, the length of the sentence",
        "T = D",
        by_root_of(lambda q, k: q.shape[-2]),
    ),
    Wrong(
        "numbers",
        "divided by √S, the number of keys",
        "S = D",
        by_root_of(lambda q, k: k.shape[-2]),
    ),
    Wrong(
        "numbers",
        "divided by √C, the model's width (ng-video-lecture PR 6)",
        "one head",
        by_root_of(lambda q, k: q.shape[-1] * (q.shape[-3] if q.ndim > 2 else 1)),
    ),
    Wrong(
        "numbers",
        "divided by √H, the number of heads (tt-metal PR 56789)",
        "the favourite key",
        by_root_of(lambda q, k: q.shape[-3] if q.ndim > 2 else 1),
    ),
    Wrong(
        "ready-made",
        "attention is one call in PyTorch",
        "every number",
        lambda q, k, v, m: SDPA(q, k, v, m),
    ),
    Wrong(
        "ready-made",
        "attention is one module in PyTorch",
        "that something attends",
        lambda q, k, v, m: (
            nn.MultiheadAttention(q.shape[-1], 1, kdim=k.shape[-1], vdim=v.shape[-1])(
                q.flatten(0, -3), k.flatten(0, -3), v.flatten(0, -3)
            )[0]
            if q.ndim > 3
            else nn.MultiheadAttention(
                q.shape[-1], 1, kdim=k.shape[-1], vdim=v.shape[-1]
            )(q, k, v)[0]
        ),
    ),
)


@ATTEND.wrong("numbers", "no mask")
def small_sentinel(query, key, value, mask):
    """A sentinel that is low enough for small scores."""
    return attention(
        *(query, key, value, mask),
        hide=lambda s, m: s.masked_fill(~m, -10.0),
    )


@ATTEND.wrong("numbers", "two digits, while the best key is not hidden")
def renormalised(query, key, value, mask):
    """Masked after the softmax, with an epsilon against empty rows."""
    weights = checks.check_weights.solution(query, key)
    if mask is not None:
        weights = weights * mask
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-3)
    return weights @ value


@ATTEND.wrong("numbers", "masks of padding")
def only_first_row(query, key, value, mask):
    """The first row of the mask is used for all queries."""
    if mask is not None:
        mask = mask[..., :1, :]
    return checks.check_attend.solution(query, key, value, mask)


@ATTEND.wrong("numbers", "a batch of one")
def without_heads(query, key, value, mask):
    """Tried on a batch of one: its mask is used for all."""
    if mask is not None and mask.ndim > 2:
        mask = mask[0, 0]
    return checks.check_attend.solution(query, key, value, mask)


@ATTEND.wrong("empty-nan-gradient", "every number forwards")
def added_infinity(query, key, value, mask):
    """A float mask of minus infinity is added, and NaN covered up."""
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    if mask is None:
        return scores.softmax(-1) @ value
    bias = torch.zeros(mask.shape, dtype=scores.dtype)
    bias = bias.masked_fill(~mask, -torch.inf)
    weights = (scores + bias).softmax(-1)
    return torch.where(mask, weights, 0.0) @ value


@ATTEND.wrong("numbers", "no mask, and empty rows")
def hidden_rows(query, key, value, mask):
    """The mask is taken to hide queries."""
    found = attention(query, key, value, None, hide=None)
    return found if mask is None else found * mask.any(-1, keepdim=True)


@ATTEND.wrong("type", "the output")
def both_returned(query, key, value, mask):
    """Output and weights are returned, as in many libraries."""
    weights = checks.check_weights.solution(query, key)
    return checks.check_attend.solution(query, key, value, mask), weights


@ATTEND.wrong("numbers", "symmetric masks")
def turned_mask(query, key, value, mask):
    """Rows and columns of the mask swapped, tried on T = S."""
    if mask is not None and mask.shape[-1] == mask.shape[-2]:
        mask = mask.mT
    return checks.check_attend.solution(query, key, value, mask)


@ATTEND.wrong("error", "masks that have all axes")
def mask_for_every_head(query, key, value, mask):
    """An axis for the heads, whatever the mask has."""
    if mask is not None and mask.ndim < query.ndim:
        mask = mask.unsqueeze(1)
    return checks.check_attend.solution(query, key, value, mask)


@ATTEND.wrong("numbers", "scores of usual size")
def added_sentinel(query, key, value, mask):
    """The mask is added as -10000 (hyunwoongko/transformer PR 40)."""
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    if mask is None:
        return scores.softmax(-1) @ value
    weights = (scores + (mask.to(scores) - 1) * 1e4).softmax(-1)
    return (weights * mask) @ value


@ATTEND.wrong("numbers", "scores of usual size, and empty rows")
def renormalised_where_possible(query, key, value, mask):
    """Masked after the softmax and divided by what is left."""
    weights = checks.check_weights.solution(query, key)
    if mask is not None:
        weights = weights * mask
        total = weights.sum(-1, keepdim=True)
        weights = weights / torch.where(total == 0, 1, total)
    return weights @ value


@ATTEND.wrong("numbers", "one key")
def softmax_twice(query, key, value, mask):
    """softmax in the function and again outside."""
    eye = torch.eye(key.shape[-2], dtype=key.dtype)
    eye = eye.expand(*key.shape[:-1], -1)
    weights = checks.check_attend.solution(query, key, eye, mask)
    return weights.softmax(-1) @ value


@ATTEND.wrong("error", "T = S = 1")
def roles_swapped(query, key, value, mask):
    """Queries and keys have changed places."""
    return checks.check_attend.solution(key, query, value, mask)


@ATTEND.wrong("gradient", "every number forwards")
def covered_output(query, key, value, mask):
    """NaN is covered up at the very end."""
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return (scores.softmax(-1) @ value).nan_to_num()


@ATTEND.wrong("numbers", "directions, with one key")
def of_unit_values(query, key, value, mask):
    """The values are brought to length 1."""
    value = F.normalize(value, dim=-1)
    return checks.check_attend.solution(query, key, value, mask)


@ATTEND.wrong("numbers", "the last query")
def causal_unasked(query, key, value, mask):
    """A causal mask comes on top, as in every GPT."""
    seen = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    mask = seen if mask is None else mask & seen
    return checks.check_attend.solution(query, key, value, mask)


GRADIENT = Answers(checks.check_gradient, make.in_double)


@GRADIENT.wrong("numbers", "dvalue and dkey")
def query_lost_factor(query, key, value, upstream):
    """1/√D for the keys only."""
    dquery, dkey, dvalue = checks.check_gradient.solution(query, key, value, upstream)
    return dquery * query.shape[-1] ** 0.5, dkey, dvalue


@GRADIENT.wrong("shape", "every number, elsewhere")
def swapped(query, key, value, upstream):
    """Dkey is returned before dquery."""
    dquery, dkey, dvalue = checks.check_gradient.solution(query, key, value, upstream)
    return dkey, dquery, dvalue


@GRADIENT.wrong("numbers", "upstream gradients of ones")
def of_ones(query, key, value, upstream):
    """The gradient of output.sum()."""
    ones = torch.ones_like(upstream)
    return checks.check_gradient.solution(query, key, value, ones)


@GRADIENT.wrong("numbers", "upstream gradients of ones")
def reversed_rows(query, key, value, upstream):
    """Rows of upstream mixed up (flash-attention-minimal's indices)."""
    return checks.check_gradient.solution(query, key, value, upstream.flip(-2))


@GRADIENT.wrong("numbers", "what has no batch")
def averaged_over_batch(query, key, value, upstream):
    """The mean over the batch, as a loss would take it."""
    found = checks.check_gradient.solution(query, key, value, upstream)
    return tuple(x / (x.shape[0] if x.ndim > 2 else 1) for x in found)


@GRADIENT.wrong("shape", "what has no batch")
def summed_over_heads(query, key, value, upstream):
    """The batch is summed over, as for a shared matrix."""
    found = checks.check_gradient.solution(query, key, value, upstream)
    return tuple(x.sum(0) if x.ndim > 3 else x for x in found)


@GRADIENT.wrong("numbers", "dvalue")
def output_average(query, key, value, upstream):
    """g · o with mean for sum."""
    w = checks.check_weights.solution(query, key)
    dw = upstream @ value.mT
    average = (upstream * (w @ value)).mean(-1, keepdim=True)
    ds = w * (dw - average) * query.shape[-1] ** -0.5
    return ds @ key, ds.mT @ query, w.mT @ upstream


@GRADIENT.wrong("ready-made", "every number")
def engine(query, key, value, upstream):
    """Autograd can do it."""
    inputs = [x.detach().requires_grad_() for x in (query, key, value)]
    output = checks.check_attend.solution(*inputs)
    return torch.autograd.grad(output, inputs, upstream)


@GRADIENT.wrong("ready-made", "every number")
def forward_mode(query, key, value, upstream):
    """Autograd in forward mode can do it."""
    jacobians = torch.func.jacfwd(
        lambda q, k, v: checks.check_weights.solution(q, k) @ v,
        argnums=(0, 1, 2),
    )(query, key, value)
    return tuple(torch.tensordot(upstream, J, upstream.ndim) for J in jacobians)


@GRADIENT.wrong("ready-made", "every number")
def kernel_backward(query, key, value, upstream):
    """PyTorch has a kernel for the backward pass of softmax."""
    w, c = checks.check_weights.solution(query, key), query.shape[-1] ** -0.5
    ds = torch.ops.aten._softmax_backward_data(upstream @ value.mT, w, -1, w.dtype)
    return ds @ key * c, ds.mT @ query * c, w.mT @ upstream


@GRADIENT.wrong("numbers", "three digits")
def differences(query, key, value, upstream):
    """Difference quotients, in double precision, with a large step."""
    inputs = [x.double() for x in (query, key, value)]
    found = []
    for i, x in enumerate(inputs):
        slope = torch.zeros_like(x).flatten()
        for n in range(x.numel()):
            step = torch.zeros(x.numel(), dtype=x.dtype)
            step[n] = 1e-2
            step = step.view(x.shape)
            up, down = (
                checks.check_attend.solution(
                    *inputs[:i], x + side * step, *inputs[i + 1 :]
                )
                for side in (1, -1)
            )
            slope[n] = ((up - down) * upstream).sum() / 2e-2
        found.append(slope.view(x.shape).to(query.dtype))
    return tuple(found)


@GRADIENT.wrong("ready-made", "every number")
def engine_backward(query, key, value, upstream):
    """Backward can do it."""
    inputs = [x.detach().requires_grad_() for x in (query, key, value)]
    checks.check_attend.solution(*inputs).backward(upstream)
    return tuple(x.grad for x in inputs)


PREDICTED = Answers(checks.check_predicted_weights)


@PREDICTED.wrong("numbers", "three of the changes")
def shifted_weights(weights, change, key):
    """The temperature is taken to divide the weights."""
    factor = {"halve the temperature": 2, "double the temperature": 0.5}
    return weights * factor.get(change, 1.0)


@PREDICTED.wrong("numbers", "every other change")
def reversed_order(weights, change, key):
    """The negated query is taken to reverse the list of weights."""
    if change == "negate the query":
        return weights.flip(0)
    return checks.check_predicted_weights.solution(weights, change, key)


@PREDICTED.wrong("shape", "every other change")
def without_the_masked(weights, change, key):
    """The masked key is removed from the list."""
    new = checks.check_predicted_weights.solution(weights, change, key)
    if change == "mask out the key":
        return torch.cat([new[:key], new[key + 1 :]])
    return new


@PREDICTED.wrong("shape", "every other change")
def repeated_in_place(weights, change, key):
    """The repeated key keeps one weight, twice as large."""
    if change == "repeat the key":
        new = weights.clone()
        new[key] = 2 * new[key]
        return new / new.sum()
    return checks.check_predicted_weights.solution(weights, change, key)


@PREDICTED.wrong("numbers", "every other change")
def softmax_of_weights(weights, change, key):
    """The weights are taken for scores."""
    factor = {"halve the temperature": 2, "double the temperature": 0.5}
    if change in factor:
        return (factor[change] * weights).softmax(-1)
    return checks.check_predicted_weights.solution(weights, change, key)


@PREDICTED.wrong("numbers", "every other change")
def mean_of_values(weights, change, key):
    """A temperature twice as high is taken to be an infinite one."""
    if change == "double the temperature":
        return torch.full_like(weights, 1 / len(weights))
    return checks.check_predicted_weights.solution(weights, change, key)


ATTENTION_FAULT = Answers(
    checks.check_attention_fault, *make.DECISION, make.counted_from_one
)


@ATTENTION_FAULT.wrong("always-right", "functions without a fault")
def fault_by_shape(attend, query, key, value):
    """Only the shape is tested, and it is right for the example."""
    return 0 if attend(query, key, value).shape == value.shape else 5


@ATTENTION_FAULT.wrong("numbers", "wrong values, and right functions")
def fault_with_equal_keys(attend, query, key, value):
    """All keys are equal, so that every scale gives equal weights."""
    return checks.check_attention_fault.solution(
        lambda q, k, v: attend(q, k[:1].expand_as(k), v), query, key, value
    )


@ATTENTION_FAULT.wrong("numbers", "faults of the scale")
def fault_by_comparison(attend, query, key, value):
    """Whatever differs from the reference is called a wrong scale."""
    right = (query @ key.T / query.shape[-1] ** 0.5).softmax(-1) @ value
    return 0 if torch.allclose(attend(query, key, value), right) else 3


SCORE_KIND = Answers(checks.check_score_kind, *make.DECISION, make.counted_from_one)


@SCORE_KIND.wrong("numbers", "functions that ignore the query, sometimes")
def kind_by_random_keys(weigh, D):
    """Random keys: often, all three scores prefer the same one."""
    rng = torch.Generator().manual_seed(0)
    q, k = torch.randn(D, generator=rng), torch.randn(3, D, generator=rng)
    found = int(weigh(q, k).argmax())
    rules = k @ q, F.cosine_similarity(k, q[None]), -(k - q).norm(dim=-1)
    best = [int(rule.argmax()) for rule in rules]
    return best.index(found) if found in best else 3


@SCORE_KIND.wrong("error", "nothing")
def kind_by_attribute(weigh, D):
    """The function is inspected instead of tested."""
    return ("dot product", "cosine", "distance").index(weigh.name)


@SCORE_KIND.wrong("error", "width 3")
def kind_for_three(weigh, D):
    """The width of the first example is assumed."""
    return checks.check_score_kind.solution(
        lambda q, k: weigh(q, torch.cat([k[:, :2], k[:, :1] * 0], -1)), D
    )


@SCORE_KIND.wrong("numbers", "nothing")
def kind_by_first_slot(weigh, D):
    """The slot with the largest weight is returned."""
    return int(weigh(torch.ones(D), torch.eye(3, D)).argmax())


ANSWERS = collect_answers(checks, vars())
