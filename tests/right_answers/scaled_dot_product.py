"""Right answers to the exercises of chapters/04_scaled_dot_product."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import scaled_dot_product as checks
from right_answers import collect_answers, in_double


def weights_by_loops(query, key):
    lead, scale = query.shape[:-2], query.shape[-1] ** -0.5
    rows = []
    for t in range(query.shape[-2]):
        scores = [
            (query[..., t, :] * scale * key[..., s, :]).sum(-1)
            for s in range(key.shape[-2])
        ]
        rows.append(torch.stack(scores, -1).softmax(-1))
    found = torch.stack(rows, -2)
    assert found.shape[:-2] == lead
    return found


def weights_by_einsum(query, key):
    query = query / math.sqrt(query.shape[-1])
    scores = torch.einsum("...td,...sd->...ts", query, key)
    return torch.softmax(scores, dim=-1)


def weights_with_softmax_by_hand(query, key):
    scores = query / query.shape[-1] ** 0.5 @ key.transpose(-1, -2)
    e = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return e / e.sum(-1, keepdim=True)


def weights_by_two_fourth_roots(query, key):
    root = query.shape[-1] ** -0.25
    return F.softmax((query * root) @ (key * root).mT, dim=-1)


def weights_by_logsumexp(query, key):
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    return (scores - scores.logsumexp(-1, keepdim=True)).exp()


def weights_by_columns(query, key):
    return (key * key.shape[-1] ** -0.5 @ query.mT).softmax(-2).mT


class Attention(nn.Module):
    """Module style, with the softmax as a layer."""

    def __init__(self):
        super().__init__()
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, query, key, value, mask=None):
        scores = query / math.sqrt(query.size(-1)) @ key.transpose(-2, -1)
        if mask is None:
            return self.softmax(scores) @ value
        weights = self.softmax(scores.masked_fill(~mask, -torch.inf))
        return weights.masked_fill(~mask, 0.0) @ value


def attend_with_nan_to_num(query, key, value, mask):
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), -torch.inf)
    return scores.softmax(-1).nan_to_num() @ value


def attend_by_the_lowest_number(query, key, value, mask):
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    if mask is None:
        return scores.softmax(-1) @ value
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return (scores.softmax(-1) * mask) @ value


def attend_with_softmax_by_hand(query, key, value, mask):
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    seen = torch.ones_like(scores, dtype=torch.bool)
    seen = seen if mask is None else seen & mask
    top = scores.masked_fill(~seen, -torch.inf).amax(-1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0.0)
    e = (scores - top).masked_fill(~seen, -torch.inf).exp()
    total = e.sum(-1, keepdim=True)
    return e @ value / total.masked_fill(total == 0, 1.0)


def attend_by_rows(query, key, value, mask):
    if mask is None:
        mask = torch.ones(1, dtype=torch.bool)
    mask = mask.expand(*query.shape[:-1], key.shape[-2])
    rows = []
    for t in range(query.shape[-2]):
        seen = mask[..., t, :]
        scores = (query[..., t : t + 1, :] @ key.mT)[..., 0, :]
        scores = scores / query.shape[-1] ** 0.5
        scores = scores.masked_fill(~seen, -torch.inf)
        weights = scores.softmax(-1).masked_fill(~seen, 0.0)
        rows.append((weights[..., None] * value).sum(-2))
    return torch.stack(rows, -2)


def gradient_by_upstream_times_output(query, key, value, upstream):
    scale = query.shape[-1] ** -0.5
    w = (query @ key.mT * scale).softmax(-1)
    output = w @ value
    average = (upstream * output).sum(-1, keepdim=True)
    ds = w * (upstream @ value.mT - average)
    return ds @ key * scale, ds.mT @ query * scale, w.mT @ upstream


def gradient_by_einsum(query, key, value, upstream):
    scale = query.shape[-1] ** -0.5
    scores = torch.einsum("...td,...sd->...ts", query, key) * scale
    w = scores.softmax(-1)
    dvalue = torch.einsum("...ts,...te->...se", w, upstream)
    dw = torch.einsum("...te,...se->...ts", upstream, value)
    ds = w * dw - w * torch.einsum("...ts,...ts->...t", w, dw)[..., None]
    dquery = torch.einsum("...ts,...sd->...td", ds, key) * scale
    return dquery, torch.einsum("...ts,...td->...sd", ds, query) * scale, dvalue


def gradient_by_the_whole_jacobian(query, key, value, upstream):
    scale = query.shape[-1] ** -0.5
    w = (query @ key.mT * scale).softmax(-1)
    jacobian = torch.diag_embed(w) - w[..., :, None] * w[..., None, :]
    dw = upstream @ value.mT
    ds = (jacobian @ dw[..., None])[..., 0] * scale
    return [ds @ key, ds.mT @ query, w.mT @ upstream]


def gradient_by_query(query, key, value, upstream):
    scale = query.shape[-1] ** -0.5
    dquery, dkey, dvalue = [], torch.zeros_like(key), torch.zeros_like(value)
    for t in range(query.shape[-2]):
        q, g = query[..., t, None, :], upstream[..., t, None, :]
        w = (q @ key.mT * scale).softmax(-1)
        dw = g @ value.mT
        ds = w * (dw - (w * dw).sum(-1, keepdim=True)) * scale
        dquery.append(ds @ key)
        dkey, dvalue = dkey + ds.mT @ q, dvalue + w.mT @ g
    return torch.cat(dquery, -2), dkey, dvalue


def gradient_in_numpy(query, key, value, upstream):
    q, k, v, g = (x.numpy().astype(float) for x in (query, key, value, upstream))
    scale = q.shape[-1] ** -0.5
    scores = q @ k.swapaxes(-1, -2) * scale
    w = np.exp(scores - scores.max(-1, keepdims=True))
    w /= w.sum(-1, keepdims=True)
    dw = g @ v.swapaxes(-1, -2)
    ds = w * (dw - (w * dw).sum(-1, keepdims=True)) * scale
    found = ds @ k, ds.swapaxes(-1, -2) @ q, w.swapaxes(-1, -2) @ g
    return tuple(torch.from_numpy(x).to(query.dtype) for x in found)


def gradient_of_values_less_their_average(query, key, value, upstream):
    scale = query.shape[-1] ** -0.5
    w = (query * scale @ key.mT).softmax(-1)
    centred = value[..., None, :, :] - (w @ value)[..., :, None, :]
    ds = w * (centred * upstream[..., :, None, :]).sum(-1) * scale
    return ds @ key, ds.mT @ query, w.mT @ upstream


def changed_by_scores(weights, change, key):
    """Any scores with these weights do: log w."""
    s = weights.log()
    if change == "halve the temperature":
        s = 2 * s
    if change == "double the temperature":
        s = s / 2
    if change == "negate the query":
        s = -s
    if change == "set the query to zero":
        s = 0 * s
    if change == "mask out the key":
        s = s.masked_fill(torch.arange(len(s)) == key, -torch.inf)
    if change == "repeat the key":
        s = torch.cat([s, s[key : key + 1]])
    return s.softmax(-1)


def changed_in_python(weights, change, key):
    w = weights.tolist()
    power = {
        "halve the temperature": 2,
        "double the temperature": 0.5,
        "negate the query": -1,
        "set the query to zero": 0,
    }.get(change, 1)
    w = [x**power for x in w]
    if change == "mask out the key":
        w[key] = 0.0
    if change == "repeat the key":
        w.append(w[key])
    return torch.tensor([x / sum(w) for x in w])


def changed_in_numpy(weights, change, key):
    w = weights.numpy().astype(float)
    if change in ("halve the temperature", "double the temperature"):
        w = w ** (2 if change.startswith("halve") else 0.5)
    elif "query" in change:
        w = 1 / w if "negate" in change else np.ones(len(w))
    elif change == "mask out the key":
        w = np.where(np.arange(len(w)) == key, 0, w)
    elif change == "repeat the key":
        w = np.append(w, w[key])
    return torch.from_numpy(w / w.sum()).to(weights.dtype)


def changed_case_by_case(weights, change, key):
    def normalized(x):
        return x / x.sum()

    others = torch.arange(len(weights)) != key
    return {
        "add 3 to every score": lambda: weights.clone(),
        "double every value": lambda: weights * 1.0,
        "halve the temperature": lambda: normalized(weights.square()),
        "double the temperature": lambda: normalized(weights**0.5),
        "negate the query": lambda: normalized(weights.reciprocal()),
        "set the query to zero": lambda: torch.full_like(weights, 1 / len(weights)),
        "mask out the key": lambda: weights * others / (1 - weights[key]),
        "repeat the key": lambda: (
            torch.cat([weights, weights[key].view(1)]) / (1 + weights[key])
        ),
    }[change]()


def fault_by_gradients_of_values(attend, query, key, value):
    """Weights are the gradient of the output with respect to the values."""
    query, key = (torch.randn(n, 11, generator=seeded()) for n in (2, 3))
    value = torch.randn(3, 5, generator=seeded()).requires_grad_()

    def weights_of(q, k):
        rows = []
        for t in range(len(q)):
            out = attend(q, k, value)
            if not out.requires_grad or out.shape[-1] != 5:
                return None
            (grad,) = torch.autograd.grad(out[t, 0], value)
            rows.append(grad[:, 0])
        return torch.stack(rows)

    w = weights_of(query, key)
    if w is None:
        return 5
    if torch.allclose(weights_of(query[:1], key), torch.ones(1, 3)):
        return 1
    if not torch.allclose(w.sum(-1), torch.ones(2), atol=1e-5):
        return 2
    moved = weights_of(query, key.flip(0))
    if not torch.allclose(moved, w.flip(1), atol=1e-5):
        return 4
    right = (query @ key.T / 11**0.5).softmax(-1)
    return 0 if torch.allclose(w, right, atol=1e-5) else 3


def seeded():
    return torch.Generator().manual_seed(7)


def fault_by_computing_each_fault(attend, query, key, value):
    """Each fault is computed, and compared with what the function returns."""
    rng = seeded()
    q, k = torch.randn(3, 6, generator=rng), torch.randn(5, 6, generator=rng)
    v = torch.randn(5, 4, generator=rng)
    out = attend(q, k, v)
    s = q @ k.T

    def is_(w, of=v):
        return out.shape == (w @ of).shape and torch.allclose(out, w @ of, atol=1e-5)

    if is_((s / 6**0.5).softmax(-1)):
        return 0
    if is_((s / 6**0.5).softmax(-1), k):
        return 5
    if is_((s / 6**0.5).softmax(0)):
        return 1
    if is_((q @ k.reshape(6, 5) / 6**0.5).softmax(-1)):
        return 4
    if is_(s.softmax(-1) / 6**0.5) or is_((s / 6**0.5).sigmoid()):
        return 2
    return 3


def fault_by_one_key(attend, query, key, value):
    """With one key, the output is its value, whatever the scale."""
    rng = seeded()
    q, k = torch.randn(2, 1, 9, generator=rng)
    q, v = q.expand(4, 9), torch.randn(1, 9, generator=rng)
    out = attend(q, k, v)
    if torch.allclose(out, attend(q, k, v + 1), atol=1e-6):
        return 5
    if torch.allclose(out, v / 4, atol=1e-5):
        return 1
    if not torch.allclose(out, v.expand_as(out), atol=1e-5):
        return 2
    q, k = 2 * torch.eye(9)[:3], torch.zeros(2, 9)
    k[0, 2] = 1.0
    w = attend(q, k, torch.eye(2))
    if not torch.allclose(w[:2], torch.tensor(0.5), atol=1e-5):
        return 4
    want = torch.tensor([2 / 3, 0.0]).softmax(-1)
    return 0 if torch.allclose(w[2], want, atol=1e-5) else 3


def fault_in_double(attend, query, key, value):
    return checks.check_attention_fault.solution(
        lambda *x: attend(*(y.double() for y in x)).float(), query, key, value
    )


def fault_at_several_sizes(attend, query, key, value):
    def unit(n):
        return torch.eye(n)

    rng = seeded()
    for t, s, d in ((4, 3, 5), (2, 7, 3), (5, 2, 13)):
        q = torch.randn(t, d, generator=rng)
        k = torch.randn(s, d, generator=rng)
        w = attend(q, k, unit(s))
        if torch.equal(w, attend(q, k, 3 * unit(s))):
            return 5
        if torch.allclose(attend(q[-1:], k, unit(s)), torch.tensor(1.0)):
            return 1
        if (w.sum(1) - 1).abs().max() > 1e-4:
            return 2
        if (attend(q, k.roll(1, 0), unit(s)).roll(-1, 1) - w).abs().max() > 1e-4:
            return 4
        if (w - (q @ k.T / d**0.5).softmax(1)).abs().max() > 1e-4:
            return 3
    return 0


def make_kind(keys, queries, predicted):
    """Return an experiment with keys and queries in the first two axes."""

    def answer(weigh, D):
        key, query = torch.zeros(len(keys), D), torch.zeros(len(queries), D)
        key[:, :2], query[:, :2] = torch.tensor(keys), torch.tensor(queries)
        found = tuple(int(weigh(q, key).argmax()) for q in query)
        return predicted.index(found) if found in predicted else 3

    return answer


def kind_by_lengths(weigh, D):
    """Longer queries and longer keys, one change at a time."""
    one, other = torch.zeros(2, D)
    one[0], other[1] = 1.0, 1.0
    pair = torch.stack([one, other])
    if not weigh(one, pair).argmax() == 0 == weigh(other, pair).argmax() - 1:
        return 3
    nearer = torch.stack([one, 3 * one])
    w = weigh(one, nearer)
    if torch.allclose(w, torch.tensor(0.5), atol=1e-4):
        return 1
    return 0 if w[1] > w[0] else 2


def kind_by_random_keys(weigh, D):
    """The order of five random keys, eight times."""
    rng = seeded()
    orders = []
    for _ in range(8):
        q = torch.randn(D, generator=rng)
        k = 0.7 * torch.randn(5, D, generator=rng)
        rules = (
            k @ q,
            k @ q / k.norm(dim=-1),
            -(k - q).norm(dim=-1),
        )
        found = weigh(q, k).argsort().tolist()
        orders.append([found == rule.argsort().tolist() for rule in rules])
    fits = [all(x) for x in zip(*orders, strict=True)]
    return fits.index(True) if sum(fits) == 1 else 3


KIND_PREDICTIONS = [(1, 2), (2, 1), (0, 2)]


def kind_by_a_longer_query(weigh, D):
    """The length of the query tells the cosine from the others."""
    query, key = torch.zeros(D), torch.zeros(3, D)
    query[0] = 1.0
    key[:, :2] = torch.tensor([[0.9, 0.3], [0.5, 0.0], [2.0, 2.0]])
    weights = weigh(query, key)
    if not torch.allclose(weigh(query, key.flip(0)).flip(0), weights):
        return 3  # it depends on the slot
    if torch.allclose(weigh(-query, key), weights):
        return 3  # it ignores the query
    if torch.allclose(weigh(3 * query, key), weights, atol=1e-5):
        return 1
    return 0 if weights.argmax() == 2 else 2


def changed_in_double(weights, change, key):
    new = checks.check_predicted_weights.solution(weights.double(), change, key)
    return new.to(weights.dtype)


weights_in_double = in_double(checks.check_weights.solution)
attend_in_a_module = Attention()
attend_in_double = in_double(checks.check_attend.solution)
kind_by_other_keys = make_kind(
    [(0.3, 2.0), (4.0, 5.0), (0.0, 0.5)],
    [(0.0, 2.0), (0.0, -2.0)],
    KIND_PREDICTIONS,
)
kind_with_gradients_off = torch.no_grad()(kind_by_lengths)
ANSWERS = collect_answers(
    vars(),
    check_weights="weights",
    check_attend="attend",
    check_gradient="gradient",
    check_predicted_weights="changed",
    check_attention_fault="fault",
    check_score_kind="kind",
)
