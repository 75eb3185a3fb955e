"""Right answers to the exercises of chapters/07_masks."""

import copy
import math

import numpy as np
import torch
from torch import nn

from attnbook.exercises import masks as checks
from right_answers import in_double


def causal_by_tril(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril(diagonal=S - T)


def causal_by_loops(T, S):
    return torch.tensor([[s <= t + S - T for s in range(S)] for t in range(T)])


def causal_by_numpy(T, S):
    return torch.from_numpy(np.tri(T, S, S - T, dtype=bool))


def causal_from_a_square(T, S):
    most = max(T, S)
    return torch.ones(most, most).tril().bool()[most - T :, most - S :]


def causal_of_the_future(T, S):
    return torch.triu(torch.ones(T, S), diagonal=S - T + 1) == 0


def causal_by_slices(T, S):
    mask = torch.zeros(T, S, dtype=torch.bool)
    for t in range(T):
        mask[t, : max(0, S - T + t + 1)] = True
    return mask


def padding_by_loops(lengths, S):
    mask = torch.zeros(len(lengths), 1, 1, S, dtype=torch.bool)
    for b, n in enumerate(lengths):
        mask[b, 0, 0, :n] = True
    return mask


def padding_by_broadcasting(lengths, S):
    return torch.arange(S).view(1, 1, 1, S) < lengths.view(-1, 1, 1, 1)


def padding_by_lists(lengths, S):
    return torch.tensor([[[[s < n for s in range(S)]]] for n in lengths])


def padding_by_sums(lengths, S):
    ones = torch.ones(len(lengths), S, dtype=torch.long).cumsum(1)
    return ones.le(lengths.unsqueeze(1)).unsqueeze(1).unsqueeze(1)


def padding_by_numpy(lengths, S):
    mask = np.arange(S)[None] < lengths.numpy()[:, None]
    return torch.from_numpy(mask)[:, None, None]


def padding_expanded(lengths, S):
    places = torch.arange(S).expand(len(lengths), S)
    return ~(places >= lengths[:, None]).unflatten(0, (-1, 1, 1))


def combine_by_tril(lengths, T):
    real = torch.arange(T) < lengths[:, None]
    return real[:, None, None, :].expand(-1, 1, T, T).tril()


def combine_by_loops(lengths, T):
    mask = torch.zeros(len(lengths), 1, T, T, dtype=torch.bool)
    for b, n in enumerate(lengths.tolist()):
        for t in range(T):
            mask[b, 0, t, : min(t + 1, n)] = True
    return mask


def combine_by_minimum(lengths, T):
    ends = torch.minimum(torch.arange(1, T + 1), lengths[:, None])
    return (torch.arange(T) < ends[..., None]).unsqueeze(1)


def combine_by_products(lengths, T):
    past = torch.tril(torch.ones(T, T, dtype=torch.long))
    real = (torch.arange(T) < lengths[:, None]).long()
    return torch.einsum("ts,bs->bts", past, real).bool()[:, None]


def combine_of_what_is_hidden(lengths, T):
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    pad = (torch.arange(T) >= lengths[:, None])[:, None, None]
    return ~(future | pad)


def combine_of_additive(lengths, T):
    future = torch.full((T, T), -math.inf).triu(1)
    pad = torch.zeros(len(lengths), 1, 1, T)
    pad[(torch.arange(T) >= lengths[:, None])[:, None, None]] = -math.inf
    return (future + pad) == 0


class Weights(nn.Module):
    """Module style; hidden weights are emptied at the end."""

    def forward(self, scores, mask):
        empty = ~mask.any(-1, keepdim=True)
        hidden = torch.where(mask | empty, scores, -torch.inf)
        return torch.where(empty, 0.0, torch.softmax(hidden, -1))


def weights_by_lowest(scores, mask):
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest).softmax(-1) * mask


def weights_by_hand(scores, mask):
    hidden = scores.masked_fill(~mask, -torch.inf)
    top = hidden.amax(-1, keepdim=True).detach()
    e = (hidden - top.masked_fill(top == -torch.inf, 0.0)).exp()
    total = e.sum(-1, keepdim=True)
    return e / total.masked_fill(total == 0, 1.0)


def weights_by_an_extra_key(scores, mask):
    """A key with score -inf, but 0 in empty rows, takes what is left over."""
    empty = ~mask.any(-1, keepdim=True).expand_as(scores[..., :1])
    extra = torch.full_like(scores[..., :1], -torch.inf).masked_fill(empty, 0.0)
    hidden = scores.masked_fill(~mask, -torch.inf)
    return torch.cat([hidden, extra], -1).softmax(-1)[..., :-1]


def weights_by_rows(scores, mask):
    mask = mask.expand_as(scores)
    rows = []
    for row, seen in zip(scores.flatten(0, 2), mask.flatten(0, 2), strict=True):
        found = row * 0 if not seen.any() else row[seen].softmax(0)
        full = torch.zeros_like(row)
        if seen.any():
            full = full.masked_scatter(seen, found)
        rows.append(full)
    return torch.stack(rows).view_as(scores)


def by_single_tokens(model, tokens):
    """One token changes at a time; the model is copied, so its mode stays."""
    model = copy.deepcopy(model).eval()
    with torch.no_grad():
        before = model(tokens)
        for s in range(1, tokens.shape[1]):
            for v in range(before.shape[-1]):
                changed = tokens.clone()
                changed[:, s] = v
                after = model(changed)
                if not torch.allclose(after[:, :s], before[:, :s], atol=1e-5):
                    return False
    return True


def by_chance(model, tokens):
    """Many random futures, with padding among them."""
    training = model.training
    model.eval()
    rng, worst = torch.Generator().manual_seed(1), 0.0
    before = model(tokens)
    for n in range(150):
        start = 1 + n % max(tokens.shape[1] - 1, 1)
        other = torch.randint(before.shape[-1], tokens.shape, generator=rng)
        changed = torch.cat([tokens[:, :start], other[:, start:]], 1)
        moved = (model(changed) - before)[:, :start].abs()
        worst = max(worst, moved.nan_to_num(torch.inf).max().item())
    model.train(training)
    return worst < 1e-4


def by_queries(model, tokens):
    """Only the nearest past is looked at, for every cut."""
    modes = {part: part.training for part in model.modules()}
    before = model.eval()(tokens)
    good = torch.tensor(True)
    for t in range(tokens.shape[1] - 1):
        for v in range(before.shape[-1]):
            changed = tokens.clone()
            changed[:, t + 1 :] = v
            gap = (model(changed)[:, t] - before[:, t]).abs().max()
            good &= gap < 1e-4
    for part, mode in modes.items():
        part.training = mode
    return good


def by_numpy(model, tokens):
    was = model.training
    model.train(False)
    before = model(tokens).numpy(force=True)
    fine = [True]
    for t in range(1, tokens.shape[1]):
        for v in range(before.shape[-1]):
            changed = tokens.clone()
            changed[:, t:].fill_(v)
            after = model(changed).numpy(force=True)
            fine.append(np.allclose(after[:, :t], before[:, :t], atol=1e-6))
    model.train(was)
    return np.all(fine)


def by_assertions(model, tokens):
    frozen = copy.deepcopy(model).requires_grad_(False).eval()
    before = frozen(tokens)
    try:
        for v in range(before.shape[-1]):
            for t in reversed(range(1, tokens.shape[1])):
                changed = tokens.masked_fill(
                    torch.arange(tokens.shape[1]) >= t, v
                )
                torch.testing.assert_close(
                    frozen(changed)[:, :t], before[:, :t]
                )
    except AssertionError:
        return False
    return True


ANSWERS = {
    "check_causal": (
        ("tril", causal_by_tril),
        ("loops", causal_by_loops),
        ("numpy's tri", causal_by_numpy),
        ("a corner of a square", causal_from_a_square),
        ("what is not the future", causal_of_the_future),
        ("slices", causal_by_slices),
    ),
    "check_padding": (
        ("loops", padding_by_loops),
        ("broadcasting", padding_by_broadcasting),
        ("lists", padding_by_lists),
        ("running sums", padding_by_sums),
        ("numpy", padding_by_numpy),
        ("what is not padding", padding_expanded),
    ),
    "check_combine": (
        ("tril of padding", combine_by_tril),
        ("loops", combine_by_loops),
        ("the nearer of two ends", combine_by_minimum),
        ("einsum", combine_by_products),
        ("what is not hidden", combine_of_what_is_hidden),
        ("additive, then compared", combine_of_additive),
    ),
    "check_masked_weights": (
        ("a module", Weights()),
        ("the lowest number, then the mask", weights_by_lowest),
        ("softmax by hand", weights_by_hand),
        ("an extra key", weights_by_an_extra_key),
        ("row by row", weights_by_rows),
        ("double inside", in_double(checks.check_masked_weights.solution)),
    ),
    "check_no_leak": (
        ("one token at a time", by_single_tokens),
        ("many random futures", by_chance),
        ("query by query, a tensor", by_queries),
        ("numpy", by_numpy),
        ("assert_close", by_assertions),
    ),
}
