"""Right answers to the exercises of chapters/01_bottleneck."""

import functools
import itertools

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import encoder_decoder as checks
from attnbook.exercises.encoder_decoder import encoder_fault as fault
from attnbook.exercises.encoder_decoder import error_cause as cause
from attnbook.training.metrics import edit_distance
from right_answers import collect_answers, in_double


def reverse_by_loops(tokens, lengths):
    result = tokens.clone()
    for b, n in enumerate(lengths.tolist()):
        for i in range(n):
            result[b, i] = tokens[b, n - 1 - i]
    return result


def reverse_by_roll(tokens, lengths):
    rows = zip(tokens.flip(1), lengths.tolist(), strict=True)
    width = tokens.shape[1]
    return torch.stack([row.roll(n - width) for row, n in rows])


def reverse_by_negative_places(tokens, lengths):
    mirrored = lengths[:, None] - 1 - torch.arange(tokens.shape[1])
    rows = torch.arange(len(tokens))[:, None]
    return tokens[rows, mirrored]


def reverse_by_modulo(tokens, lengths):
    width = tokens.shape[1]
    places = (lengths[:, None] - 1 - torch.arange(width)) % width
    turned = tokens[torch.arange(len(tokens))[:, None], places]
    padding = torch.arange(width) >= lengths[:, None]
    return torch.where(padding, tokens, turned)


def reverse_by_sorting(tokens, lengths):
    places = torch.arange(tokens.shape[1]).expand_as(tokens)
    real = places < lengths[:, None]
    keys = torch.where(real, -places, places)
    return tokens.gather(1, keys.argsort(dim=1))


def reverse_by_lists(tokens, lengths):
    rows = [
        row[:n][::-1] + row[n:]
        for row, n in zip(tokens.tolist(), lengths.tolist(), strict=True)
    ]
    return torch.tensor(rows)


def last_by_gather(states, lengths):
    index = (lengths - 1).view(-1, 1, 1).expand(-1, 1, states.shape[-1])
    return torch.gather(states, 1, index).squeeze(1)


def last_by_loop(states, lengths):
    ends = zip(states, lengths, strict=True)
    return torch.stack([state[n - 1] for state, n in ends])


def last_by_one_hot(states, lengths):
    chosen = F.one_hot(lengths - 1, states.shape[1]).to(states.dtype)
    return torch.einsum("bs,bsm->bm", chosen, states)


def last_by_boolean_mask(states, lengths):
    return states[torch.arange(states.shape[1]) == lengths[:, None] - 1]


def last_by_packing(states, lengths):
    packed = nn.utils.rnn.pack_padded_sequence(
        states, lengths, batch_first=True, enforce_sorted=False
    )
    padded, lengths = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    return last_by_gather(padded, lengths)


def last_from_one_flat_axis(states, lengths):
    starts = torch.arange(len(states)) * states.shape[1]
    return states.reshape(-1, states.shape[2])[starts + lengths - 1]


def loss_by_loops(logits, targets, pad):
    losses = []
    for x, y in zip(logits, targets.tolist(), strict=True):
        for scores, target in zip(x, y, strict=True):
            if target != pad:
                losses.append(scores.logsumexp(0) - scores[target])
    return torch.stack(losses).sum() / len(losses)


def loss_by_weights(logits, targets, pad):
    real = (targets != pad).to(logits.dtype)
    loss = F.cross_entropy(logits.mT, targets, reduction="none")
    return (loss * real).sum() / real.sum()


def loss_by_one_hot(logits, targets, pad):
    truth = F.one_hot(targets, logits.shape[-1]).to(logits.dtype)
    truth = truth * (targets != pad)[..., None]
    return -(truth * logits.log_softmax(-1)).sum() / truth.sum()


def loss_with_selection_first(logits, targets, pad):
    real = targets.ne(pad).nonzero(as_tuple=True)
    return F.nll_loss(F.log_softmax(logits[real], dim=-1), targets[real])


def loss_by_ignore_index(logits, targets, pad):
    return F.cross_entropy(logits.mT, targets, ignore_index=pad)


def distance(a, b):
    @functools.cache
    def of(i, j):
        if min(i, j) == 0:
            return i + j
        return min(
            of(i - 1, j) + 1,
            of(i, j - 1) + 1,
            of(i - 1, j - 1) + (a[i - 1] != b[j - 1]),
        )

    return of(len(a), len(b))


def rate_by_recursion(outputs, references):
    edits = symbols = 0
    for output, accepted in zip(outputs, references, strict=True):
        nearest = min(accepted, key=lambda r: distance(output, r))
        edits, symbols = (
            edits + distance(output, nearest),
            symbols + len(nearest),
        )
    return edits / symbols


def rate_by_numpy_table(outputs, references):
    def table(a, b):
        cost = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
        cost[:, 0], cost[0] = range(len(a) + 1), range(len(b) + 1)
        for i, x in enumerate(a, 1):
            for j, y in enumerate(b, 1):
                cost[i, j] = min(
                    cost[i - 1, j] + 1,
                    cost[i, j - 1] + 1,
                    cost[i - 1, j - 1] + (x != y),
                )
        return cost[-1, -1]

    rows = [
        min((table(o, r), len(r)) for r in accepted)
        for o, accepted in zip(outputs, references, strict=True)
    ]
    edits, symbols = np.array(rows).sum(0)
    return edits / symbols


def rate_by_the_librarys_distance(outputs, references):
    best = [
        min((edit_distance(o, r), len(r)) for r in accepted)
        for o, accepted in zip(outputs, references, strict=True)
    ]
    return sum(e for e, _ in best) / sum(n for _, n in best)


def rate_turned_round(outputs, references):
    best = [
        sorted(accepted, key=lambda r, o=o: edit_distance(r, o))[0]
        for o, accepted in zip(outputs, references, strict=True)
    ]
    edits = [edit_distance(r, o) for r, o in zip(best, outputs, strict=True)]
    return torch.tensor(edits).sum().item() / len(sum(best, ()))


def rate_as_tensor(outputs, references):
    return torch.tensor(rate_by_the_librarys_distance(outputs, references))


def greedy_by_for(step, state, start, end, limit):
    said, previous = [], start
    for _ in range(limit):
        logits, state = step(previous, state)
        previous = logits.argmax(-1).item()
        if previous == end:
            return said
        said.append(previous)
    return said


def greedy_by_recursion(step, state, start, end, limit):
    if limit == 0:
        return []
    logits, state = step(start, state)
    symbol = max(range(len(logits)), key=lambda i: logits[i])
    if symbol == end:
        return []
    return [symbol, *greedy_by_recursion(step, state, symbol, end, limit - 1)]


def greedy_by_generator(step, state, start, end, limit):
    def speak(state):
        previous = start
        while True:
            logits, state = step(previous, state)
            previous = int(logits.log_softmax(-1).topk(1).indices)
            if previous == end:
                return
            yield previous

    return list(itertools.islice(speak(state), limit))


def greedy_cut_afterwards(step, state, start, end, limit):
    said = [start]
    for _ in range(limit):
        logits, state = step(said[-1], state)
        said.append(int(logits.argmax()))
    said = said[1:]
    return said[: said.index(end)] if end in said else said


def greedy_as_tuple(step, state, start, end, limit):
    said = ()
    while len(said) < limit:
        logits, state = step(said[-1] if said else start, state)
        if (symbol := int(logits.softmax(0).argmax())) == end:
            break
        said += (symbol,)
    return said


def depends_by_loops(length, width, packed):
    result = torch.zeros(2, width, width, dtype=torch.bool)
    for i in range(width):
        for j in range(width):
            if packed and max(i, j) >= length:
                continue
            result[0, i, j], result[1, i, j] = j <= i, j >= i
    return result


def depends_by_triangles_of_ones(length, width, packed):
    n = length if packed else width
    result = torch.zeros(2, width, width, dtype=torch.bool)
    ones = torch.ones(n, n, dtype=torch.bool)
    result[0, :n, :n], result[1, :n, :n] = ones.tril(), ones.triu()
    return result


def depends_by_experiment(length, width, packed):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        gru = nn.GRU(3, 5, batch_first=True, bidirectional=True).double()
        x = torch.randn(1, width, 3, dtype=torch.float64)
    given = nn.utils.rnn.pack_padded_sequence if packed else lambda x, *_, **__: x

    def states(x):
        found = gru(given(x, torch.tensor([length]), batch_first=True))[0]
        if packed:
            found = nn.utils.rnn.pad_packed_sequence(
                found, batch_first=True, total_length=width
            )[0]
        return found[0].detach().view(width, 2, 5)

    before = states(x)
    columns = []
    for j in range(width):
        changed = x.clone()
        changed[0, j] += 1
        columns.append((states(changed) != before).any(-1).mT)
    return torch.stack(columns, dim=-1)


def depends_by_a_grid_of_positions(length, width, packed):
    i, j = torch.meshgrid(*2 * [torch.arange(width)], indexing="ij")
    inside = (torch.maximum(i, j) < length) | (not packed)
    return torch.stack([(j <= i) & inside, (j >= i) & inside])


def depends_by_a_running_sum(length, width, packed):
    eye = torch.eye(width)
    forward = eye.cumsum(0) > 0
    result = torch.stack([forward, forward.T])
    if packed:
        result[:, length:] = False
        result[:, :, length:] = False
    return result


def context_changes(model, one, other):
    return not torch.allclose(model(*one)[0], model(*other)[0])


def fault_by_equal_lengths(model, source, lengths):
    n = int(lengths.min())
    equal, same = source[:, :n], torch.full_like(lengths, n)
    row, one = source[:1, : lengths[0]], lengths[:1]
    padded = torch.cat([row, torch.zeros(1, 3, dtype=row.dtype)], dim=1)
    others = []
    for j in 0, -1:
        other = row.clone()
        other[0, j] = 1 + other[0, j] % 2
        others.append((model(row, one) == model(other, one)).any())
    return torch.tensor(
        [
            context_changes(model, (row, one), (padded, one)),
            context_changes(model, (equal, same), (equal[:1], same[:1])),
            others[0] or others[1],
        ]
    )


def fault_by_permutation(model, source, lengths):
    order = torch.tensor([1, 0, *range(2, len(lengths))])
    permuted = model(source[order], lengths[order])[order]
    wider = torch.cat([source, torch.zeros_like(source)], dim=1)
    before = model(source, lengths)
    return torch.stack(
        [
            ~torch.isclose(model(wider, lengths), before).all(),
            ~torch.isclose(permuted, before).all(),
            torch.tensor(fault.ignores_symbol(model, source, lengths)),
        ]
    )


def fault_by_other_neighbours(model, source, lengths):
    others = source.clone()
    others[1:, 0] = others[1:, 0] % 6 + 1
    faults = torch.zeros(3, dtype=torch.bool)
    wider = torch.cat([source, torch.zeros_like(source[:, :1])], dim=1)
    faults[0] = context_changes(model, (source, lengths), (wider, lengths))
    faults[1] = context_changes(model, (source, lengths), (others, lengths))
    faults[2] = fault.ignores_symbol(model, source, lengths)
    return faults


def fault_by_the_longest_sequence(model, source, lengths):
    n = lengths.tolist()
    longest = max(range(len(n)), key=n.__getitem__)
    row = source[longest : longest + 1]
    alone = model(row, lengths[longest : longest + 1])
    wide = torch.nn.functional.pad(row, (0, 4))
    padded = model(wide, lengths[longest : longest + 1])
    together = model(source, lengths)[longest : longest + 1]
    tests = (
        (alone - padded).abs().max() > 1e-9,
        (alone - together).abs().max() > 1e-9,
    )
    ignores = fault.ignores_symbol(model, row, lengths[longest : longest + 1])
    return torch.tensor([*map(bool, tests), ignores])


def fault_entry_by_entry(model, source, lengths):
    n = int(lengths[0])
    row, one = source[:1, :n], lengths[:1]
    before = model(row, one)[0]
    moved = []
    for j in range(n):
        other = row.clone()
        other[0, j] = 1 + (other[0, j] + 1) % 6
        moved.append(model(other, one)[0] != before)
    found = fault_by_other_neighbours(model, source, lengths)
    found[2] = not bool(torch.stack(moved).all())
    return found


def cause_in_one_loop(step, state, start, target):
    own, forced = state, state
    previous, true, first, late = start, start, None, False
    for t, symbol in enumerate(target):
        logits, own = step(previous, own)
        previous = int(logits.argmax())
        logits, forced = step(true, forced)
        missing, true = int(logits.argmax()) != symbol, symbol
        if first is not None and missing:
            late = True
        if first is None and previous != symbol:
            first = t
    return not late


def cause_from_the_first_error(step, state, start, target):
    made = cause.generate_freely(step, state, start, len(target))
    k = next(t for t in range(len(target)) if made[t] != target[t])
    for previous in [start, *target[:k]]:
        _, state = step(previous, state)
    for previous, symbol in zip(target[k:], target[k + 1 :], strict=False):
        logits, state = step(previous, state)
        if int(logits.argmax()) != symbol:
            return False
    return True


def cause_of_the_first_error_in_both(step, state, start, target):
    made = cause.predict_with_true_history(step, state, start, target)
    return len(cause.find_errors(made, target)) == 1


def cause_by_recursion(step, state, start, target):
    def errors(previous, state, rest, force):
        if not rest:
            return []
        logits, after = step(previous, state)
        symbol = int(logits.argmax())
        fed = rest[0] if force else symbol
        return [symbol != rest[0], *errors(fed, after, rest[1:], force)]

    first = errors(start, state, target, False).index(True)
    return not any(errors(start, state, target, True)[first + 1 :])


def cause_with_tensors(step, state, start, target):
    right = torch.tensor(target)
    own = torch.tensor(cause.generate_freely(step, state, start, len(target)))
    forced = torch.tensor(cause.predict_with_true_history(step, state, start, target))
    first = int((own != right).int().argmax())
    return (forced == right)[first + 1 :].all()


loss_in_double = in_double(checks.check_masked_loss.solution)
ANSWERS = collect_answers(
    vars(),
    check_reverse_source="reverse",
    check_last_state="last",
    check_masked_loss="loss",
    check_error_rate="rate",
    check_greedy="greedy",
    check_state_dependencies="depends",
    check_encoder_fault="fault",
    check_error_cause="cause",
)
