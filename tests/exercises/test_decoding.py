"""Exercises on decoding: right answers of several kinds, and wrong ones."""

import math

import numpy as np
import torch
from torch import einsum

from answers import make_tests
from attnbook.exercises import decoding as checks


def bytes_by_tensors_without_numbers(L, H, G, D, Z, R, S, window, group):
    def size(*shape, dtype=torch.float16):
        return torch.empty(shape, dtype=dtype, device="meta").nbytes

    codes = size(L, 2, S, G * D // 2, dtype=torch.uint8)
    return [
        size(L, 2, H, S, D),
        size(L, 2, G, S, D),
        size(L, S, Z) + size(L, S, R),
        size(L, 2, G, min(window, S), D),
        codes + size(L, 2, G, S, D // group, 2),
    ]


def bytes_by_position(L, H, G, D, Z, R, S, window, group):
    mha, mla = 4 * L * H * D, 2 * L * (Z + R)
    gqa = mha * G / H
    four = gqa / 4 + gqa / 2 * 4 / group
    kept = window if window < S else S
    return np.array([mha * S, gqa * S, mla * S, gqa * kept, four * S])


def latent_by_einsum(query, turned, latents, rotary_key, W_key, W_value, mask):
    absorbed = einsum("htn,hnz->htz", query, W_key)
    both = torch.cat([absorbed, turned], -1), torch.cat([latents, rotary_key], -1)
    scores = einsum("htw,sw->hts", *both) / math.sqrt(
        query.shape[2] + rotary_key.shape[1]
    )
    weights = torch.where(mask, scores, -torch.inf).softmax(2)
    return einsum("hts,sz,hez->hte", weights, latents, W_value)


def latent_head_by_head(query, turned, latents, rotary_key, W_key, W_value, mask):
    outputs = []
    for q, q_r, W_k, W_v in zip(query, turned, W_key, W_value, strict=True):
        scores = q @ W_k @ latents.T + q_r @ rotary_key.T
        weights = (scores / (len(W_k) + q_r.shape[1]) ** 0.5).exp() * mask
        average = weights @ latents / weights.sum(-1, keepdim=True)
        outputs.append(average @ W_v.T)
    return torch.stack(outputs)


def latent_expanding_one_head(query, turned, latents, rotary_key, W_key, W_value, mask):
    scale = (query.shape[-1] + turned.shape[-1]) ** -0.5
    outputs = []
    for h, q in enumerate(query):
        scores = q @ (latents @ W_key[h].T).T + turned[h] @ rotary_key.T
        weights = (scores * scale).masked_fill(~mask, -torch.inf).softmax(-1)
        outputs.append(weights @ (latents @ W_value[h].T))
    return torch.stack(outputs)


def accept_by_products(proposed, draft, target, uniform):
    rows = range(len(proposed))
    p, q = target[rows, proposed], draft[rows, proposed]
    count = int((uniform * q < p).long().cumprod(0).sum())
    if count == len(proposed):
        return count, target[count]
    rest = target[count] - torch.minimum(target[count], draft[count])
    return torch.tensor(count), rest / rest.sum()


def accept_by_lists(proposed, draft, target, uniform):
    q = [*draft.tolist(), [0.0] * target.shape[1]]  # nothing is proposed last
    p = target.tolist()
    n = 0
    while n < len(proposed):
        ratio = p[n][proposed[n]] / q[n][proposed[n]]
        if float(uniform[n]) > min(1.0, ratio):
            break
        n += 1
    rest = [max(0.0, a - b) for a, b in zip(p[n], q[n], strict=True)]
    return n, np.array(rest) / sum(rest)


def accept_until_improbable(proposed, draft, target, uniform):
    for i, token in enumerate(proposed):
        if target[i, token] < draft[i, token]:  # the uniform number is not used
            rest = (target[i] - draft[i]).clamp(min=0)
            return i, rest / rest.sum()
    return len(proposed), target[-1]


def fault_by_rules(decode, window):
    first = decode([[1, 2, 3, 4, 5]])
    decode([[9, 8, 7, 6, 5]])
    if not torch.equal(decode([[1, 2, 3, 4, 5]]), first):
        return 5
    a, b = [5] * window + [6, 7, 8], [5] * window + [6, 7, 9]
    if (decode([a]) - decode([b])).abs()[:-1].max() > 1e-6:
        return 1
    far = [x for x in range(40) for _ in range(2)]
    changed = [50, *far[1:]]
    two = decode([far[:4], *[[x] for x in far[4:]]])[-1]
    one = decode([changed[:4], *[[x] for x in changed[4:]]])[-1]
    few = list(range(20, 20 + window - 1))
    before = decode([few, [1]])[-1]
    if torch.allclose(before, decode([[few[0], *few[:0:-1]], [1]])[-1]):
        return 3  # only the first key matters
    if not torch.allclose(decode([[*few, 1]])[-1], before):
        return 4
    return 0 if torch.allclose(one, two) else 2


def fault_by_chunks(decode, window):
    ids = [(7 * i) % 60 for i in range(4 * window)]
    one = [decode([ids]), decode([ids[1:]]), decode([ids])]
    if not torch.allclose(one[0], one[2]):
        return 5
    if not torch.allclose(decode([ids[:3]]), one[0][:3]):
        return 1
    start = ids[: window - 1]
    if torch.allclose(decode([start[:2], start[2:]]), one[0][: window - 1]):
        return 0 if torch.allclose(decode([ids[:3], ids[3:]]), one[0]) else 2
    # In chunks of one token, the second key is masked out by a top-left mask.
    both = [decode([[x] for x in (start[0], x, start[2])])[2] for x in (1, 2)]
    return 3 if torch.allclose(*both) else 4


def exact_in_double_precision(make_cache):
    key, value = torch.randn(99, 4).double(), torch.randn(99, 3).double()
    cache = make_cache()
    for n in range(0, 99, 9):
        cache.append(key[n : n + 9].float(), value[n : n + 9].float())
        found = cache.attend(torch.zeros(4)).double()  # all weights are equal
        if not torch.allclose(found, value[: n + 9].mean(0), atol=1e-5):
            return False
    # Keys matter, too.
    scores = key.float().double() @ torch.ones(4).double() / 2
    right = scores.softmax(0) @ value
    return torch.allclose(cache.attend(torch.ones(4)).double(), right, atol=1e-5)


def exact_by_values_that_count(make_cache):
    """With values that are an identity matrix, the output is the weights."""
    key, eye = 0.1 * torch.randn(90, 2), torch.eye(90) / 3
    cache, query = make_cache(), torch.tensor([3.0, 4.0])
    cache.append(key, eye)
    weights = 3 * cache.attend(query)
    return bool((weights - (key @ query / 2**0.5).softmax(0)).abs().max() < 1e-6)


def exact_by_stored_rows(make_cache):
    cache = make_cache()
    cache.append(torch.eye(4), torch.eye(4))
    return len(cache.keys) == 1


RIGHT = {
    checks.check_cache_bytes: (bytes_by_tensors_without_numbers, bytes_by_position),
    checks.check_attend_latent: (latent_by_einsum, latent_head_by_head),
    checks.check_accept_tokens: (accept_by_products, accept_by_lists),
    checks.check_decoder_fault: (fault_by_rules, fault_by_chunks),
    checks.check_is_exact: (exact_in_double_precision, exact_by_values_that_count),
}
WRONG = (
    (checks.check_attend_latent, "expanded", latent_expanding_one_head),
    (checks.check_accept_tokens, "", accept_until_improbable),
    (checks.check_is_exact, "", exact_by_stored_rows),
)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
