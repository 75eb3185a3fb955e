"""Answers to the exercises on masks, and wrong ones."""

import copy

import torch
from torch.nn import functional as F

from answers import make_tests
from attnbook.exercises import masks as checks


def causal_by_tril(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril(diagonal=S - T)


def causal_by_loops(T, S):
    return torch.tensor([[s <= t + S - T for s in range(S)] for t in range(T)])


def causal_without_empty_rows(T, S):
    mask = causal_by_tril(T, S)
    return mask | ~mask.any(-1, keepdim=True)


def weights_by_where(scores, mask):
    empty = ~mask.any(-1, keepdim=True)
    low = torch.where(mask | empty, scores, -torch.inf)
    return torch.where(empty, 0.0, F.softmax(low, dim=-1))


def weights_by_the_lowest_number(scores, mask):
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest).softmax(-1) * mask


def weights_from_a_maximum_of_0(scores, mask):
    low = scores.masked_fill(~mask, -torch.inf)
    powers = (low - low.amax(-1, keepdim=True).clamp(min=0.0)).exp()
    total = powers.sum(-1, keepdim=True)
    return powers / total.masked_fill(~mask.any(-1, keepdim=True), 1.0)


def leak_by_one_token_at_a_time(model, tokens):
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


def leak_query_by_query(model, tokens):
    modes = {part: part.training for part in model.modules()}
    before = model.eval()(tokens)
    good = torch.tensor(True)
    for t in range(tokens.shape[1] - 1):
        for v in range(before.shape[-1]):
            changed = torch.cat(
                [tokens[:, : t + 1], torch.full_like(tokens, v)[:, t + 1 :]], 1
            )
            good &= (model(changed)[:, t] - before[:, t]).abs().max() < 1e-4
    for part, mode in modes.items():
        part.training = mode
    return good


def leak_sentence_by_sentence(model, tokens):
    return all(leak_by_one_token_at_a_time(model, row[None]) for row in tokens)


def interface_case_by_case(scores, mask, how):
    seen = mask.bool()
    if how.endswith("float"):
        return torch.softmax(scores + mask, dim=0)
    if how == "after":
        return mask * torch.softmax(scores, dim=0)
    if how == "-1e4":
        return torch.where(seen, scores, -1e4).softmax(0)
    seen = ~seen if how.startswith("module") else seen
    if not seen.any():
        return torch.zeros_like(scores)
    return scores.masked_fill(~seen, -torch.inf).softmax(0)


def interface_by_subtracting_the_rest(scores, mask, how):
    if how.endswith("float"):
        return (scores - (1 - mask)).softmax(-1)
    if how == "after":
        return scores.softmax(-1).masked_fill(mask == 0, 0.0)
    if how == "-1e4":
        return (scores * mask - 1e4 * (1 - mask)).softmax(-1)
    out = mask == (0 if how == "SDPA, boolean" else 1)
    return scores.masked_fill(out, -torch.inf).softmax(-1).nan_to_num()


RIGHT = {
    checks.check_causal: (causal_by_tril, causal_by_loops),
    checks.check_masked_weights: (weights_by_where, weights_by_the_lowest_number),
    checks.check_no_leak: (leak_by_one_token_at_a_time, leak_query_by_query),
    checks.check_interface_weights: (
        interface_case_by_case,
        interface_by_subtracting_the_rest,
    ),
}
WRONG = (
    (checks.check_causal, "", causal_without_empty_rows),
    (checks.check_masked_weights, "", weights_from_a_maximum_of_0),
    (checks.check_no_leak, "", leak_sentence_by_sentence),
)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
