"""The exercises on scaled dot-product attention: right and wrong answers."""

import math

import numpy as np
import torch
from torch import nn

from answers import make_tests
from attnbook.exercises import scaled_dot_product as chapter


def weights_by_einsum(query, key):
    scores = torch.einsum("...td,...sd->...ts", query / math.sqrt(query.size(-1)), key)
    e = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return e / e.sum(-1, keepdim=True)


def weights_by_logsumexp(query, key):
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    return (scores - scores.logsumexp(-1, keepdim=True)).exp()


class Attention(nn.Module):
    """Module style, with the softmax as a layer."""

    def forward(self, query, key, value, mask=None):
        scores = query / math.sqrt(query.size(-1)) @ key.transpose(-2, -1)
        if mask is None:
            return nn.Softmax(dim=-1)(scores) @ value
        weights = nn.Softmax(dim=-1)(scores.masked_fill(~mask, -torch.inf))
        return weights.masked_fill(~mask, 0.0) @ value


def attend_by_the_lowest_number(query, key, value, mask):
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    if mask is None:
        return scores.softmax(-1) @ value
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return (scores.softmax(-1) * mask) @ value


def changed_by_scores(weights, change, key):
    """Any scores with these weights do: log w."""
    factor = {
        "halve the temperature": 2,
        "double the temperature": 0.5,
        "negate the query": -1,
        "set the query to zero": 0,
    }
    s = factor.get(change, 1) * weights.log()
    if change == "mask out the key":
        s[key] = -torch.inf
    if change == "repeat the key":
        s = torch.cat([s, s[key : key + 1]])
    return s.softmax(-1)


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


def seeded():
    return torch.Generator().manual_seed(7)


def kind_by_lengths(weigh, D):
    """Longer queries and longer keys, one change at a time."""
    one, other = torch.zeros(2, D)
    one[0], other[1] = 1.0, 1.0
    pair = torch.stack([one, other])
    if not weigh(one, pair).argmax() == 0 == weigh(other, pair).argmax() - 1:
        return 3
    w = weigh(one, torch.stack([one, 3 * one]))
    if torch.allclose(w, torch.tensor(0.5), atol=1e-4):
        return 1
    return 0 if w[1] > w[0] else 2


def kind_by_random_keys(weigh, D):
    """Compare the order of five random keys, eight times."""
    rng = seeded()
    fits = [True] * 3
    for _ in range(8):
        q, k = torch.randn(D, generator=rng), 0.7 * torch.randn(5, D, generator=rng)
        found = weigh(q, k).argsort().tolist()
        rules = k @ q, k @ q / k.norm(dim=-1), -(k - q).norm(dim=-1)
        for n, rule in enumerate(rules):
            fits[n] = fits[n] and found == rule.argsort().tolist()
    return fits.index(True) if sum(fits) == 1 else 3


def weigh(query, key, axis=-1, least=-torch.inf):
    """Return weights by hand, with a maximum that is not below a number."""
    scores = query * query.shape[-1] ** -0.5 @ key.mT
    e = (scores - scores.amax(axis, keepdim=True).clamp(min=least)).exp()
    return e / e.sum(axis, keepdim=True)


RIGHT = {
    chapter.check_weights: (weights_by_einsum, weights_by_logsumexp),
    chapter.check_attend: (Attention(), attend_by_the_lowest_number),
    chapter.check_predicted_weights: (changed_by_scores, changed_in_numpy),
    chapter.check_score_kind: (kind_by_lengths, kind_by_random_keys),
}
WRONG = (
    (chapter.check_weights, "", lambda q, k: weigh(q, k, least=0.0)),
    (chapter.check_weights, "wrong-axis", lambda q, k: weigh(q, k, axis=-2)),
    (
        chapter.check_score_kind,
        "",
        lambda weigh, D: int(weigh(torch.ones(D), torch.eye(3, D)).argmax()),
    ),
)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
