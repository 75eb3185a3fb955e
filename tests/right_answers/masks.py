"""Right answers to the exercises of chapters/07_masks."""

import copy
import math

import numpy as np
import torch
from torch import nn

from attnbook.exercises import masks as checks
from right_answers import collect_answers, in_double


def causal_by_tril(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril(diagonal=S - T)


def causal_by_loops(T, S):
    return torch.tensor([[s <= t + S - T for s in range(S)] for t in range(T)])


def causal_by_numpy(T, S):
    return torch.from_numpy(np.tri(T, S, S - T, dtype=bool))


def causal_from_a_square(T, S):
    most = max(T, S)
    return torch.ones(most, most).tril().bool()[most - T :, most - S :]


def causal_of_what_is_not_the_future(T, S):
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


def padding_by_running_sums(lengths, S):
    ones = torch.ones(len(lengths), S, dtype=torch.long).cumsum(1)
    return ones.le(lengths.unsqueeze(1)).unsqueeze(1).unsqueeze(1)


def padding_by_numpy(lengths, S):
    mask = np.arange(S)[None] < lengths.numpy()[:, None]
    return torch.from_numpy(mask)[:, None, None]


def padding_of_what_is_not_padding(lengths, S):
    places = torch.arange(S).expand(len(lengths), S)
    return ~(places >= lengths[:, None]).unflatten(0, (-1, 1, 1))


def combine_by_tril_of_padding(lengths, T):
    real = torch.arange(T) < lengths[:, None]
    return real[:, None, None, :].expand(-1, 1, T, T).tril()


def combine_by_loops(lengths, T):
    mask = torch.zeros(len(lengths), 1, T, T, dtype=torch.bool)
    for b, n in enumerate(lengths.tolist()):
        for t in range(T):
            mask[b, 0, t, : min(t + 1, n)] = True
    return mask


def combine_by_the_nearer_of_two_ends(lengths, T):
    ends = torch.minimum(torch.arange(1, T + 1), lengths[:, None])
    return (torch.arange(T) < ends[..., None]).unsqueeze(1)


def combine_by_einsum(lengths, T):
    past = torch.tril(torch.ones(T, T, dtype=torch.long))
    real = (torch.arange(T) < lengths[:, None]).long()
    return torch.einsum("ts,bs->bts", past, real).bool()[:, None]


def combine_of_what_is_hidden(lengths, T):
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    pad = (torch.arange(T) >= lengths[:, None])[:, None, None]
    return ~(future | pad)


def combine_of_additive_masks_compared(lengths, T):
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


def weights_by_the_lowest_number(scores, mask):
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest).softmax(-1) * mask


def weights_with_softmax_by_hand(scores, mask):
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


def leak_by_one_token_at_a_time(model, tokens):
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


def leak_by_many_random_futures(model, tokens):
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


def leak_query_by_query(model, tokens):
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


def leak_by_numpy(model, tokens):
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


def leak_by_assert_close(model, tokens):
    frozen = copy.deepcopy(model).requires_grad_(False).eval()
    before = frozen(tokens)
    try:
        for v in range(before.shape[-1]):
            for t in reversed(range(1, tokens.shape[1])):
                changed = tokens.masked_fill(torch.arange(tokens.shape[1]) >= t, v)
                torch.testing.assert_close(frozen(changed)[:, :t], before[:, :t])
    except AssertionError:
        return False
    return True


def interface_case_by_case(scores, mask, how):
    seen = mask.bool()
    if how.endswith("float"):
        return torch.softmax(scores + mask, dim=0)
    if how == "after":
        return mask * torch.softmax(scores, dim=0)
    if how == "-1e4":
        return torch.where(seen, scores, -1e4).softmax(0)
    if how.startswith("module"):
        seen = ~seen
    if not seen.any():
        return torch.zeros_like(scores)
    return scores.masked_fill(~seen, -torch.inf).softmax(0)


def interface_with_softmax_by_hand(scores, mask, how):
    e, on = (scores - scores.max()).exp(), mask
    if how == "module, boolean":
        on = 1 - mask
    if how.endswith("float"):
        e = e * math.e**mask
        return e / e.sum()
    if how == "-1e4" and not mask.any():
        return torch.full_like(e, 1 / len(e))
    if how == "after":
        return e / e.sum() * mask
    total = (e * on).sum()
    return e * on / total if total > 0 else e * 0


def interface_by_subtracting_the_rest(scores, mask, how):
    """Subtracting 1 - mask instead of adding mask changes no weight."""
    if how in ("SDPA, float", "module, float"):
        return (scores - (1 - mask)).softmax(-1)
    if how == "after":
        return scores.softmax(-1).masked_fill(mask == 0, 0.0)
    if how == "-1e4":
        return (scores * mask - 1e4 * (1 - mask)).softmax(-1)
    hidden = mask == (0 if how == "SDPA, boolean" else 1)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1).nan_to_num()


def interface_by_numpy(scores, mask, how):
    x, m = scores.double().numpy(), mask.double().numpy()
    if how.endswith("float"):
        x = x + m
    elif how == "-1e4":
        x = np.where(m == 1, x, -1e4)
    e = np.exp(x - x.max())
    if how.endswith("boolean"):
        e = e * (m if how.startswith("SDPA") else 1 - m)
    weights = e / max(e.sum(), 1e-300)
    weights = weights * m if how == "after" else weights
    return torch.from_numpy(weights).float()


def interface_by_loops(scores, mask, how):
    keep = {"SDPA, boolean": 1.0, "module, boolean": 0.0}.get(how)
    parts = []
    for score, m in zip(scores.tolist(), mask.tolist(), strict=True):
        if how.endswith("float"):
            parts.append(math.exp(score + m))
        elif keep is not None:
            parts.append(math.exp(score) if m == keep else 0.0)
        else:
            parts.append(math.exp(score))
    if how == "-1e4":
        parts = [p * m for p, m in zip(parts, mask.tolist(), strict=True)]
        if not any(parts):
            parts = [1.0] * len(parts)
    total = sum(parts) or 1.0
    weights = torch.tensor([p / total for p in parts])
    return weights * mask if how == "after" else weights


ZERO, ONE = torch.zeros(4, 2), torch.eye(4)


def fault_by_one_key(attention, x, mask):
    """A single key that one query can attend to, off the diagonal."""
    single = torch.ones(4, 4, dtype=torch.bool)
    single[1] = torch.tensor([False, False, True, False])
    row = attention(ZERO, ZERO, ONE, single)[1]
    if row.sum() < 0.9:
        return 3
    if row[2] < 0.1:
        return 1
    if 0.3 < row[2] < 0.9:
        return 2 if row[0] < 0.24 else 4
    empty = attention(ZERO, ZERO, ONE, torch.zeros(4, 4).bool())
    return 0 if torch.equal(empty, torch.zeros(4, 4)) else 5


def fault_by_huge_values(attention, x, mask):
    """What is masked out has a huge value, which must not be seen."""
    past = torch.ones(3, 3, dtype=torch.bool).tril()
    zero = torch.zeros(3, 1)
    out = attention(zero, zero, torch.tensor([[1.0], [10.0], [1e4]]), past)
    first, second, _ = out.flatten().tolist()
    if second > 9e3:
        return 1
    if second > 4e3:
        return 4
    if second > 1e3:
        return 2
    if abs(second - 5.5) > 0.1 or abs(first - 1) > 0.1:
        return 3
    none = attention(zero, zero, torch.ones(3, 1), torch.zeros(3, 3).bool())
    return 5 * int(not bool((none == 0).all()))


def fault_by_an_upper_triangle(attention, x, mask):
    upper = torch.ones(5, 5, dtype=torch.bool).triu()
    zero, one = torch.zeros(5, 3), torch.eye(5)
    weights = attention(zero, zero, one, upper).nan_to_num(9.0)
    if not torch.allclose(weights[1].sum(), torch.tensor(1.0), atol=1e-3):
        return 3
    if weights[1, 0] > 0 and weights[1, 4] > 0:
        return 2
    if weights[1, 4] == 0:
        # inverted: row 1 has key 0 alone; transposed: keys 0 and 1
        return 1 if weights[1, 0] > 0.9 else 4
    bad = attention(zero, zero, one, upper & False)
    return 0 if not bad.isnan().any() and not bad.any() else 5


def fault_in_double(attention, x, mask):
    past = torch.ones(4, 4, dtype=torch.bool).tril()
    zero, one = ZERO.double(), ONE.double()
    found = attention(zero, zero, one, past).round(decimals=2)[1].tolist()
    table = {
        (0.5, 0.5, 0.0, 0.0): 0,
        (0.0, 0.0, 0.5, 0.5): 1,
        (0.25, 0.25, 0.0, 0.0): 3,
        (0.0, 0.33, 0.33, 0.33): 4,
    }
    number = table.get(tuple(found), 2)
    empty = attention(zero, zero, one, past.logical_and(torch.tensor(False)))
    if number == 0 and (empty != 0).any():
        return 5
    return torch.tensor(number)


def fault_step_by_step(attention, x, mask):
    """One question after the other, each with a mask of its own."""

    def weigh(mask):
        return attention(ZERO, ZERO, ONE, mask)

    first = torch.zeros(4, 4, dtype=torch.bool)
    first[:, 0] = True
    weights = weigh(first)
    if weights[2, 1] > 0.3:
        return 1
    if 0 < weights[2, 1] < 0.24:
        return 2
    if weights[0].sum() < 0.5 and weights[2].sum() < 0.5:
        return 3
    if weights[0, 1] > 0:
        return 4
    empty = weigh(first & False)
    return 5 if not torch.equal(empty, empty * 0) or empty.isnan().any() else 0


PACKED, OTHERS = torch.tensor([3, 1, 4, 1, 5]), torch.tensor([2, 7, 8, 1, 5])
IDS = torch.tensor([0, 0, 0, 1, 1])


def is_close(a, b):
    return torch.allclose(a, b, atol=1e-4)


def packed_by_three_tests_and_a_table(model, tokens, ids):
    crosses = not is_close(model(PACKED, IDS)[3:], model(OTHERS, IDS)[3:])
    uses_ids = not is_close(model(PACKED, IDS), model(PACKED, IDS * 0))
    alone = is_close(model(PACKED, IDS)[3:], model(PACKED[3:], IDS[3:]))
    if crosses:
        return 1 if uses_ids else 3
    return 0 if alone else 2


def packed_by_gaps(model, tokens, ids):
    """The first token of a document sees only itself, if it is separated."""
    packed = model(PACKED, IDS)
    gap = (packed - model(OTHERS, IDS))[3:].abs().max()
    if gap > 1e-3:
        moved = (packed - model(PACKED, IDS * 0)).abs().max()
        return 3 - 2 * int(moved > 1e-3)
    start = (packed[3] - model(PACKED[3:4], IDS[3:4])[0]).abs().max()
    return 2 * int(start > 1e-3)


def packed_by_documents_of_several_lengths(model, tokens, ids):
    """Without access to it, only the length of what precedes can matter."""
    rows = {}
    for n in 1, 2, 3:
        row = torch.cat([torch.arange(n), torch.tensor([9, 8])])
        rows[n] = model(row, torch.tensor([0] * n + [1, 1]))[n:]
    swapped = torch.tensor([5, 6, 9, 8])
    if not is_close(model(swapped, torch.tensor([0, 0, 1, 1]))[2:], rows[2]):
        row = torch.cat([torch.arange(2), torch.tensor([9, 8])])
        same = is_close(
            model(row, torch.tensor([0, 0, 1, 1])), model(row, torch.zeros(4))
        )
        return 3 if same else 1
    return 0 if is_close(rows[1], rows[3]) else 2


def packed_one_fault_after_the_other(model, tokens, ids):
    """Both faults are found separately, and added."""
    row, one = torch.tensor([7, 7, 2, 2]), torch.zeros(4, dtype=torch.long)
    two = torch.tensor([0, 0, 5, 5])
    crosses = not is_close(
        model(row, two)[2:], model(torch.tensor([1, 0, 2, 2]), two)[2:]
    )
    # A document of one token attends to itself only, wherever it is packed.
    if crosses:
        continues = is_close(model(row, two), model(row, one))
    else:
        continues = not is_close(
            model(row, torch.tensor([0, 0, 0, 5]))[3:], model(row[3:], one[3:])
        )
    return crosses + 2 * continues


def packed_in_many_trials(model, tokens, ids):
    rng = torch.Generator().manual_seed(5)
    crosses = continues = depends = False
    for n in range(1, 5):
        row = torch.randint(10, (8,), generator=rng)
        other = torch.cat([(row[:n] + 3) % 10, row[n:]])
        cut = (torch.arange(8) >= n).long()
        packed = model(row, cut)
        crosses |= not is_close(packed[n:], model(other, cut)[n:])
        continues |= not is_close(packed[n:], model(row[n:], cut[n:]))
        depends |= not is_close(packed, model(row, cut * 0))
    if crosses:
        return [3, 1][depends]
    return [0, 2][continues]


weights_in_a_module = Weights()
weights_in_double = in_double(checks.check_masked_weights.solution)
ANSWERS = collect_answers(
    vars(),
    check_causal="causal",
    check_padding="padding",
    check_combine="combine",
    check_masked_weights="weights",
    check_no_leak="leak",
    check_interface_weights="interface",
    check_mask_fault="fault",
    check_packed_model="packed",
)
