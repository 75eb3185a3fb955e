"""Exercises on reading heads: right answers of several kinds, and wrong ones."""

import copy

import torch
from torch import einsum

from answers import make_tests
from attnbook.exercises import reading_heads as checks


def induction_by_loops(weights, ids):
    found = []
    for t in range(len(ids)):
        after = [s + 1 for s in range(t) if ids[s] == ids[t]]
        if after:
            found.append(weights[:, t, after].sum(-1))
    return torch.stack(found).mean(0) if found else torch.zeros(len(weights))


def induction_by_einsum(weights, ids):
    same = (ids[:, None] == ids[None]).double().tril(-1)
    after = torch.zeros_like(same)
    after[:, 1:] = same[:, :-1]
    total = einsum("hts,ts->h", weights.double(), after)
    return (total / (same.sum(1) > 0).sum().clamp(min=1)).float()


def induction_of_two_halves(weights, ids):
    """The second half is compared with the first, as if it were a copy."""
    half = len(ids) // 2
    queries = torch.arange(half, 2 * half)
    return weights[:, queries, queries - half + 1].mean(-1)


def ablate_a_view_of_the_columns(model, layer, head):
    new = copy.deepcopy(model)
    out = new.blocks[layer].attention.output
    heads = new.blocks[layer].attention.heads
    out.weight.data.view(out.out_features, heads, -1)[:, head] = 0
    return new


def ablate_by_a_hook_on_a_copy(model, layer, head):
    new = copy.deepcopy(model)
    attention = new.blocks[layer].attention

    def hook(module, given):
        x = given[0].unflatten(-1, (attention.heads, -1)).clone()
        x[..., head, :] = 0
        return x.flatten(-2)

    attention.output.register_forward_pre_hook(hook)
    return new


def counts_by_ids(block, copies, before, distance):
    ids = torch.cat([torch.arange(before) + block, torch.arange(block).repeat(copies)])
    t = torch.arange(len(ids))
    head = (t - distance).clamp(min=0)
    same = (ids[:, None] == ids).tril(-1)
    after = same.roll(1, 1)
    after[:, 0] = False
    counts = same.any(1), after[t, head], same[t, head], head == t - 1
    return torch.stack([x.sum() for x in counts])


def counts_by_dictionary(block, copies, before, distance):
    ids = [f"x{i}" for i in range(before)] + [*range(block)] * copies
    where, counts = {}, [0, 0, 0, 0]
    for t, x in enumerate(ids):
        s = t - distance if t > distance else 0
        counts[3] += s + 1 == t
        if x in where:
            counts[0] += 1
            counts[1] += s - 1 in where[x]
            counts[2] += s in where[x]
        where.setdefault(x, set()).add(t)
    return counts


def kind_by_two_gaps(head, ids):
    start = [*range(50, 64)]
    near = head([*start, 1, 2, 3, 1])[-1]
    far = head([*start, 1, 2, 3, 4, 5, 1])[-1]
    if near != far:
        return 2
    if near == 0:
        return 3 if head([*start, 7, 1, 2, 3, 7, 1])[-1] == 16 else 4
    return {15: 0, 14: 1}.get(near, 2)


def kind_by_elimination(head, ids):
    if head([*range(30)])[29] != 0:
        return 2
    twice = head(torch.tensor([0, 1, 2, 1, 2]))
    if twice[3]:
        return 0 if twice[3] == 2 else 1
    return 3 if twice[4] == 3 else 4


def kind_from_the_end_of_the_example(head, ids):
    found, half = head(ids)[-1], len(ids) // 2
    return {half: 0, half - 1: 1, 0: 4}.get(found, 2)


RIGHT = {
    checks.check_induction_score: (induction_by_loops, induction_by_einsum),
    checks.check_ablate_head: (
        ablate_a_view_of_the_columns,
        ablate_by_a_hook_on_a_copy,
    ),
    checks.check_score_counts: (counts_by_ids, counts_by_dictionary),
    checks.check_head_kind: (kind_by_two_gaps, kind_by_elimination),
}
WRONG = (
    (checks.check_induction_score, "", induction_of_two_halves),
    (checks.check_head_kind, "", kind_from_the_end_of_the_example),
)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
