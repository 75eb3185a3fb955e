"""Wrong answers to the exercises of chapters/04_scaled_dot_product."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import scaled_dot_product as checks
from wrong_answers import Wrong
from wrong_answers.common import detached, single, usual

SDPA = F.scaled_dot_product_attention


def forgotten_root(query, key):
    scores = torch.matmul(query, key.transpose(-2, -1)) / query.size(-1)
    return F.softmax(scores, dim=-1)


def channels(query, key):
    # "C" is the width of the model in the lecture, before heads are cut
    width = query.shape[-1] * (query.shape[-3] if query.ndim > 2 else 1)
    return ((query / math.sqrt(width)) @ key.mT).softmax(-1)


def sign_of_the_exponent(query, key):
    return (query / query.shape[-1] ** -0.5 @ key.mT).softmax(-1)


def columns(query, key):
    scores = query / query.shape[-1] ** 0.5 @ key.transpose(-1, -2)
    return torch.softmax(scores, dim=-2)


def by_keys(query, key):
    return (query / key.shape[-2] ** 0.5 @ key.mT).softmax(-1)


def root_of_root(query, key):
    quarter = query.shape[-1] ** -0.25
    return (query * quarter @ key.mT).softmax(-1)


def scaled_both(query, key):
    root = query.shape[-1] ** 0.5
    return (query / root @ (key / root).mT).softmax(-1)


def stable_by_the_whole(query, key):
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    e = (scores - scores.max()).exp()
    return e / e.sum(-1, keepdim=True)


def softened(query, key):
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    return e / (e.sum(-1, keepdim=True) + 1e-2)


def cosine(query, key):
    scores = F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).mT
    return scores.softmax(-1)


def distances(query, key):
    return (-torch.cdist(query.float(), key.float())).softmax(-1).to(query)


def hard(query, key):
    best = (query * query.shape[-1] ** -0.5 @ key.mT).argmax(-1)
    return F.one_hot(best, key.shape[-2]).to(query.dtype)


def logarithms(query, key):
    return (query * query.shape[-1] ** -0.5 @ key.mT).log_softmax(-1)


def flattened(query, key):
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    return scores.flatten(-2).softmax(-1).view_as(scores)


def old_transpose(query, key):
    return (query * query.shape[-1] ** -0.5 @ key.T).softmax(-1)


def torn_keys(query, key):
    turned = key.reshape(*key.shape[:-2], key.shape[-1], key.shape[-2])
    return (query * query.shape[-1] ** -0.5 @ turned).softmax(-1)


def key_frozen(query, key):
    return checks.check_weights.solution(query, key.detach())


def products(query, key):
    return query / query.shape[-1] ** 0.5 @ key.mT


def divided_late(query, key):
    scores = torch.matmul(query, key.mT)
    scores = scores / math.sqrt(query.shape[-1])
    return scores.softmax(-1)


def attention(query, key, value, mask, *, hide):
    scores = query / query.shape[-1] ** 0.5 @ key.mT
    return (scores if mask is None else hide(scores, mask)).softmax(-1) @ value


def annotated(query, key, value, mask):
    return attention(
        query, key, value, mask, hide=lambda s, m: s.masked_fill(m == 0, -1e9)
    )


def keras_polarity(query, key, value, mask):
    return attention(
        *(query, key, value, mask),
        hide=lambda s, m: s.masked_fill(m, -torch.inf),
    )


def small_sentinel(query, key, value, mask):
    return attention(
        *(query, key, value, mask),
        hide=lambda s, m: s.masked_fill(~m, -10.0),
    )


def added_mask(query, key, value, mask):
    return attention(*(query, key, value, mask), hide=lambda s, m: s + m)


def renormalised(query, key, value, mask):
    weights = checks.check_weights.solution(query, key)
    if mask is not None:
        weights = weights * mask
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-3)
    return weights @ value


def halves_the_empty(query, key, value, mask):
    if mask is None:
        return attention(query, key, value, None, hide=None)
    mean = value.mean(-2, keepdim=True)
    found = checks.check_attend.solution(query, key, value, mask)
    return torch.where(mask.any(-1, keepdim=True), found, mean)


def only_first_row(query, key, value, mask):
    if mask is not None:
        mask = mask[..., :1, :]
    return checks.check_attend.solution(query, key, value, mask)


def without_heads(query, key, value, mask):
    if mask is not None and mask.ndim > 2:
        mask = mask[0, 0]
    return checks.check_attend.solution(query, key, value, mask)


def values_hidden(query, key, value, mask):
    weights = checks.check_weights.solution(query, key)
    if mask is None:
        return weights @ value
    return torch.where(mask, weights, 0.0) @ value


def zeroed_products(query, key, value, mask):
    scores = query / query.shape[-1] ** 0.5 @ key.mT
    if mask is not None:
        scores = torch.where(mask, scores, 0.0)
    return scores.softmax(-1) @ value


def naive_infinity(query, key, value, mask):
    return attention(
        *(query, key, value, mask),
        hide=lambda s, m: torch.where(m, s, -torch.inf),
    )


def lowest(query, key, value, mask):
    return attention(
        *(query, key, value, mask),
        hide=lambda s, m: s.masked_fill(~m, torch.finfo(s.dtype).min),
    )


def added_infinity(query, key, value, mask):
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    if mask is None:
        return scores.softmax(-1) @ value
    bias = torch.zeros(mask.shape, dtype=scores.dtype)
    bias = bias.masked_fill(~mask, -torch.inf)
    weights = (scores + bias).softmax(-1)
    return torch.where(mask, weights, 0.0) @ value


def hidden_rows(query, key, value, mask):
    found = attention(query, key, value, None, hide=None)
    return found if mask is None else found * mask.any(-1, keepdim=True)


def both_returned(query, key, value, mask):
    weights = checks.check_weights.solution(query, key)
    return checks.check_attend.solution(query, key, value, mask), weights


def plain_gradient(query, key, value, upstream):
    w = checks.check_weights.solution(query, key)
    dw = upstream @ value.mT
    c = query.shape[-1] ** -0.5
    return (w * dw) @ key * c, (w * dw).mT @ query * c, w.mT @ upstream


def sigmoid_style(query, key, value, upstream):
    w = checks.check_weights.solution(query, key)
    ds = upstream @ value.mT * w * (1 - w) * query.shape[-1] ** -0.5
    return ds @ key, ds.mT @ query, w.mT @ upstream


def lost_factor(query, key, value, upstream):
    c = query.shape[-1] ** -0.5
    dquery, dkey, dvalue = checks.check_gradient.solution(
        query, key, value, upstream
    )
    return dquery / c, dkey / c, dvalue


def query_lost_factor(query, key, value, upstream):
    dquery, dkey, dvalue = checks.check_gradient.solution(
        query, key, value, upstream
    )
    return dquery * query.shape[-1] ** 0.5, dkey, dvalue


def swapped(query, key, value, upstream):
    dquery, dkey, dvalue = checks.check_gradient.solution(
        query, key, value, upstream
    )
    return dkey, dquery, dvalue


def of_ones(query, key, value, upstream):
    ones = torch.ones_like(upstream)
    return checks.check_gradient.solution(query, key, value, ones)


def reversed_rows(query, key, value, upstream):
    return checks.check_gradient.solution(query, key, value, upstream.flip(-2))


def value_only(query, key, value, upstream):
    w = checks.check_weights.solution(query, key)
    return torch.zeros_like(query), torch.zeros_like(key), w.mT @ upstream


def averaged_over_batch(query, key, value, upstream):
    found = checks.check_gradient.solution(query, key, value, upstream)
    return tuple(x / (x.shape[0] if x.ndim > 2 else 1) for x in found)


def summed_over_heads(query, key, value, upstream):
    found = checks.check_gradient.solution(query, key, value, upstream)
    return tuple(x.sum(0) if x.ndim > 3 else x for x in found)


def output_average(query, key, value, upstream):
    w = checks.check_weights.solution(query, key)
    dw = upstream @ value.mT
    average = (upstream * (w @ value)).mean(-1, keepdim=True)
    ds = w * (dw - average) * query.shape[-1] ** -0.5
    return ds @ key, ds.mT @ query, w.mT @ upstream


def engine(query, key, value, upstream):
    inputs = [x.detach().requires_grad_() for x in (query, key, value)]
    output = checks.check_attend.solution(*inputs)
    return torch.autograd.grad(output, inputs, upstream)


def engine_backward(query, key, value, upstream):
    inputs = [x.detach().requires_grad_() for x in (query, key, value)]
    checks.check_attend.solution(*inputs).backward(upstream)
    return tuple(x.grad for x in inputs)


def viewed_weights(query, key):
    flat = [x.view(-1, *x.shape[-2:]) for x in (query, key)]
    weights = checks.check_weights.solution(*flat)
    return weights.view(*query.shape[:-1], key.shape[-2])


def turned_mask(query, key, value, mask):
    if mask is not None and mask.shape[-1] == mask.shape[-2]:
        mask = mask.mT
    return checks.check_attend.solution(query, key, value, mask)


def mask_for_every_head(query, key, value, mask):
    if mask is not None and mask.ndim < query.ndim:
        mask = mask.unsqueeze(1)
    return checks.check_attend.solution(query, key, value, mask)


def added_sentinel(query, key, value, mask):
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    if mask is None:
        return scores.softmax(-1) @ value
    weights = (scores + (mask.to(scores) - 1) * 1e4).softmax(-1)
    return (weights * mask) @ value


def renormalised_where_possible(query, key, value, mask):
    weights = checks.check_weights.solution(query, key)
    if mask is not None:
        weights = weights * mask
        total = weights.sum(-1, keepdim=True)
        weights = weights / torch.where(total == 0, 1, total)
    return weights @ value


def softmax_twice(query, key, value, mask):
    eye = torch.eye(key.shape[-2], dtype=key.dtype)
    eye = eye.expand(*key.shape[:-1], -1)
    weights = checks.check_attend.solution(query, key, eye, mask)
    return weights.softmax(-1) @ value


def roles_swapped(query, key, value, mask):
    return checks.check_attend.solution(key, query, value, mask)


def covered_output(query, key, value, mask):
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return (scores.softmax(-1) @ value).nan_to_num()


def of_unit_values(query, key, value, mask):
    value = F.normalize(value, dim=-1)
    return checks.check_attend.solution(query, key, value, mask)


def by_root_of(size):
    """Return attention divided by the root of another size than D."""

    def answer(query, key, value, mask):
        factor = (query.shape[-1] / size(query, key)) ** 0.5
        return checks.check_attend.solution(query * factor, key, value, mask)

    return answer


def causal_unasked(query, key, value, mask):
    seen = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    mask = seen if mask is None else mask & seen
    return checks.check_attend.solution(query, key, value, mask)


def forward_mode(query, key, value, upstream):
    jacobians = torch.func.jacfwd(
        lambda q, k, v: checks.check_weights.solution(q, k) @ v,
        argnums=(0, 1, 2),
    )(query, key, value)
    return tuple(torch.tensordot(upstream, J, upstream.ndim) for J in jacobians)


def kernel_backward(query, key, value, upstream):
    w, c = checks.check_weights.solution(query, key), query.shape[-1] ** -0.5
    ds = torch.ops.aten._softmax_backward_data(
        upstream @ value.mT, w, -1, w.dtype
    )
    return ds @ key * c, ds.mT @ query * c, w.mT @ upstream


def differences(query, key, value, upstream):
    inputs = [x.double() for x in (query, key, value)]
    found = []
    for i, x in enumerate(inputs):
        slope = torch.zeros_like(x).flatten()
        for n in range(x.numel()):
            step = torch.zeros(x.numel(), dtype=x.dtype)
            step[n] = 1e-5
            step = step.view(x.shape)
            up, down = (
                checks.check_attend.solution(
                    *inputs[:i], x + side * step, *inputs[i + 1 :]
                )
                for side in (1, -1)
            )
            slope[n] = ((up - down) * upstream).sum() / 2e-5
        found.append(slope.view(x.shape).to(query.dtype))
    return tuple(found)


ANSWERS = {
    "check_weights": (
        *usual(checks.check_weights),
        detached(checks.check_weights.solution),
        single(checks.check_weights.solution),
        Wrong(
            "scaled-by-width-late",
            "`size(-1)` without the root",
            "the favourite key, and every shape",
            forgotten_root,
        ),
        Wrong(
            "scaled-by-model-width",
            "karpathy/ng-video-lecture PR 6: `* C**-0.5`",
            "one head",
            channels,
        ),
        Wrong(
            "multiplied",
            "esceptico/perceiver-io 9: `/ self.scale`, already inverted",
            "the favourite key",
            sign_of_the_exponent,
        ),
        Wrong(
            "wrong-axis",
            "labml 146: softmax over the queries in a diffusion model",
            "the shape where T = S",
            columns,
        ),
        Wrong(
            "numbers",
            "the root of the number of keys",
            "a problem with as many keys as components",
            by_keys,
        ),
        Wrong(
            "numbers",
            "half of improved-diffusion's two fourth roots",
            "width 1",
            root_of_root,
        ),
        Wrong(
            "scaled-by-width",
            "huggingface/transformers PR 38290: scaled twice",
            "width 1",
            scaled_both,
        ),
        Wrong(
            "nan",
            "the maximum of all scores is subtracted, so that a row far below "
            "it underflows",
            "scores of one size",
            stable_by_the_whole,
        ),
        Wrong(
            "numbers",
            "an epsilon in the denominator, against division by zero",
            "two digits",
            softened,
        ),
        Wrong(
            "numbers",
            "cosines, which are products of unit vectors",
            "every shape",
            cosine,
        ),
        Wrong(
            "numbers",
            "distances, as in kernel smoothing",
            "that near keys get more",
            distances,
        ),
        Wrong(
            "numbers",
            "the hard lookup",
            "the favourite key",
            hard,
        ),
        Wrong(
            "numbers",
            "log_softmax, copied from a loss",
            "the order of the keys",
            logarithms,
        ),
        Wrong(
            "numbers",
            "one softmax for the whole table",
            "one query",
            flattened,
        ),
        Wrong(
            "error",
            "`.T`, which turns all axes",
            "two axes",
            old_transpose,
        ),
        Wrong(
            "reshaped",
            "`view` to make the shapes fit (reczoo/FuxiCTR 30)",
            "rows that add up to 1",
            torn_keys,
        ),
        Wrong(
            "detached",
            "keys taken as constants",
            "every number forwards",
            key_frozen,
        ),
        Wrong(
            "no-softmax",
            "scores are called weights",
            "the order of the keys",
            products,
        ),
        Wrong(
            "scaled-late",
            "ultralytics PR 24990: the product overflows in half precision",
            "everything in single precision",
            divided_late,
        ),
        Wrong(
            "error",
            "`view` on heads that are views already",
            "what lies in one piece",
            viewed_weights,
        ),
        Wrong(
            "ready-made",
            "PyTorch's own, with the unit matrix as values",
            "every number",
            lambda q, k: SDPA(
                q, k, torch.eye(k.shape[-2]).expand(*k.shape[:-1], -1).to(q)
            ),
        ),
    ),
    "check_attend": (
        *usual(checks.check_attend),
        detached(checks.check_attend.solution),
        single(checks.check_attend.solution),
        Wrong(
            "sentinel",
            "the Annotated Transformer's -1e9",
            "usual scores in single precision",
            annotated,
        ),
        Wrong(
            "inverted-mask",
            "tensorflow/text PR 894: the mask upside down",
            "no mask",
            keras_polarity,
        ),
        Wrong(
            "numbers",
            "a sentinel that is low enough for small scores",
            "no mask",
            small_sentinel,
        ),
        Wrong(
            "mask-added",
            "a boolean mask is added to the scores",
            "no mask",
            added_mask,
        ),
        Wrong(
            "numbers",
            "masked after the softmax, with an epsilon against empty rows",
            "two digits, while the best key is not hidden",
            renormalised,
        ),
        Wrong(
            "empty-uniform",
            "a query that sees nothing gets the mean (d2l-en PR 2423)",
            "every row that sees something",
            halves_the_empty,
        ),
        Wrong(
            "numbers",
            "the first row of the mask is used for all queries",
            "masks of padding",
            only_first_row,
        ),
        Wrong(
            "numbers",
            "tried on a batch of one: its mask is used for all",
            "a batch of one",
            without_heads,
        ),
        Wrong(
            "masked-after",
            "hidden weights are set to 0 afterwards",
            "that hidden keys have no weight",
            values_hidden,
        ),
        Wrong(
            "zero-score",
            "hidden products are set to 0",
            "no mask",
            zeroed_products,
        ),
        Wrong(
            "empty-nan",
            "minus infinity, and no thought of empty rows (pytorch 160064)",
            "every row that sees something",
            naive_infinity,
        ),
        Wrong(
            "empty-uniform",
            "the lowest finite number (d2l-en PR 2423)",
            "every row that sees something",
            lowest,
        ),
        Wrong(
            "empty-nan-gradient",
            "a float mask of minus infinity is added, and NaN covered up",
            "every number forwards",
            added_infinity,
        ),
        Wrong(
            "numbers",
            "the mask is taken to hide queries",
            "no mask, and empty rows",
            hidden_rows,
        ),
        Wrong(
            "type",
            "output and weights are returned, as in many libraries",
            "the output",
            both_returned,
        ),
        Wrong(
            "numbers",
            "rows and columns of the mask swapped, tried on T = S",
            "symmetric masks",
            turned_mask,
        ),
        Wrong(
            "error",
            "an axis for the heads, whatever the mask has",
            "masks that have all axes",
            mask_for_every_head,
        ),
        Wrong(
            "numbers",
            "the mask is added as -10000 (hyunwoongko/transformer PR 40)",
            "scores of usual size",
            added_sentinel,
        ),
        Wrong(
            "numbers",
            "masked after the softmax and divided by what is left",
            "scores of usual size, and empty rows",
            renormalised_where_possible,
        ),
        Wrong(
            "numbers",
            "softmax in the function and again outside",
            "one key",
            softmax_twice,
        ),
        Wrong(
            "error",
            "queries and keys have changed places",
            "T = S = 1",
            roles_swapped,
        ),
        Wrong(
            "gradient",
            "NaN is covered up at the very end",
            "every number forwards",
            covered_output,
        ),
        Wrong(
            "numbers",
            "the values are brought to length 1",
            "directions, with one key",
            of_unit_values,
        ),
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
            by_root_of(
                lambda q, k: q.shape[-1] * (q.shape[-3] if q.ndim > 2 else 1)
            ),
        ),
        Wrong(
            "numbers",
            "divided by √H, the number of heads (tt-metal PR 56789)",
            "the favourite key",
            by_root_of(lambda q, k: q.shape[-3] if q.ndim > 2 else 1),
        ),
        Wrong(
            "numbers",
            "a causal mask comes on top, as in every GPT",
            "the last query",
            causal_unasked,
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
                nn.MultiheadAttention(
                    q.shape[-1], 1, kdim=k.shape[-1], vdim=v.shape[-1]
                )(q.flatten(0, -3), k.flatten(0, -3), v.flatten(0, -3))[0]
                if q.ndim > 3
                else nn.MultiheadAttention(
                    q.shape[-1], 1, kdim=k.shape[-1], vdim=v.shape[-1]
                )(q, k, v)[0]
            ),
        ),
    ),
    "check_gradient": (
        *usual(checks.check_gradient),
        single(checks.check_gradient.solution),
        Wrong(
            "no-average",
            "softmax's own derivative is forgotten but for the weight",
            "dvalue, and every shape",
            plain_gradient,
        ),
        Wrong(
            "entry-by-entry",
            "softmax is differentiated like a sigmoid",
            "dvalue, and two keys of one component",
            sigmoid_style,
        ),
        Wrong(
            "no-scale",
            "1/√D on the way there, not on the way back",
            "dvalue, and width 1",
            lost_factor,
        ),
        Wrong(
            "numbers",
            "1/√D for the keys only",
            "dvalue and dkey",
            query_lost_factor,
        ),
        Wrong(
            "shape",
            "dkey is returned before dquery",
            "every number, elsewhere",
            swapped,
        ),
        Wrong(
            "numbers",
            "the gradient of output.sum()",
            "upstream gradients of ones",
            of_ones,
        ),
        Wrong(
            "numbers",
            "rows of upstream mixed up (flash-attention-minimal's indices)",
            "upstream gradients of ones",
            reversed_rows,
        ),
        Wrong(
            "detached-weights",
            "only the values learn",
            "dvalue, and a single key",
            value_only,
        ),
        Wrong(
            "numbers",
            "the mean over the batch, as a loss would take it",
            "what has no batch",
            averaged_over_batch,
        ),
        Wrong(
            "shape",
            "the batch is summed over, as for a shared matrix",
            "what has no batch",
            summed_over_heads,
        ),
        Wrong(
            "numbers",
            "g · o with mean for sum",
            "dvalue",
            output_average,
        ),
        Wrong(
            "ready-made",
            "autograd can do it",
            "every number",
            engine,
        ),
        Wrong(
            "ready-made",
            "autograd in forward mode can do it",
            "every number",
            forward_mode,
        ),
        Wrong(
            "ready-made",
            "PyTorch has a kernel for the way back through softmax",
            "every number",
            kernel_backward,
        ),
        Wrong(
            "numbers",
            "difference quotients in double precision",
            "every number in single precision",
            differences,
        ),
        Wrong(
            "ready-made",
            "backward can do it",
            "every number",
            engine_backward,
        ),
    ),
}
