"""Answers to the exercises on the encoder-decoder, and wrong ones."""

import torch
from torch.nn import functional as F

from answers import make_tests
from attnbook.exercises import encoder_decoder as checks


def loss_by_loops(logits, targets, pad):
    losses = []
    for x, y in zip(logits, targets.tolist(), strict=True):
        for scores, target in zip(x, y, strict=True):
            if target != pad:
                losses.append(scores.logsumexp(0) - scores[target])
    return torch.stack(losses).sum() / len(losses)


def loss_by_ignore_index(logits, targets, pad):
    return F.cross_entropy(logits.mT, targets, ignore_index=pad)


def loss_with_running_maximum(logits, targets, pad):
    largest = torch.full_like(logits[..., :1], -1e9)
    for column in logits.unbind(-1):
        largest = torch.maximum(largest, column[..., None])
    total = (logits - largest).exp().sum(-1).log() + largest[..., 0]
    nll = total - logits.gather(-1, targets[..., None])[..., 0]
    return nll[targets != pad].mean()


def greedy_by_recursion(step, state, start, end, limit):
    if limit == 0:
        return []
    logits, state = step(start, state)
    symbol = max(range(len(logits)), key=lambda i: logits[i])
    if symbol == end:
        return []
    return [symbol, *greedy_by_recursion(step, state, symbol, end, limit - 1)]


def greedy_with_running_maximum(least):
    """Return a search that looks for the largest logit in a loop."""

    def greedy(step, state, start, end, limit):
        said, previous = [], start
        for _ in range(limit):
            logits, state = step(previous, state)
            best, largest = 0, least
            for symbol, logit in enumerate(logits.tolist()):
                if logit > largest:
                    best, largest = symbol, logit
            if best == end:
                break
            said.append(previous := best)
        return said

    return greedy


def depends_by_loops(length, width, packed):
    result = torch.zeros(2, width, width, dtype=torch.bool)
    for i in range(width):
        for j in range(width):
            if packed and max(i, j) >= length:
                continue
            result[0, i, j], result[1, i, j] = j <= i, j >= i
    return result


def depends_by_triangles(length, width, packed):
    n = length if packed else width
    result = torch.zeros(2, width, width, dtype=torch.bool)
    ones = torch.ones(n, n, dtype=torch.bool)
    result[0, :n, :n], result[1, :n, :n] = ones.tril(), ones.triu()
    return result


def cause_in_one_loop(step, state, start, target):
    own, forced = state, state
    previous, true, first, late = start, start, None, False
    for t, symbol in enumerate(target):
        logits, own = step(previous, own)
        previous = int(logits.argmax())
        logits, forced = step(true, forced)
        missing, true = int(logits.argmax()) != symbol, symbol
        late |= first is not None and missing
        if first is None and previous != symbol:
            first = t
    return not late


def cause_of_one_error(step, state, start, target):
    wrong = 0
    for previous, symbol in zip([start, *target], target, strict=False):
        logits, state = step(previous, state)
        wrong += int(logits.argmax()) != symbol
    return torch.tensor(wrong == 1)


def cause_of_many_errors(step, state, start, target):
    wrong, previous = 0, start
    for symbol in target:
        logits, state = step(previous, state)
        previous = int(logits.argmax())
        wrong += previous != symbol
    return wrong > len(target) / 2


RIGHT = {
    checks.check_masked_loss: (loss_by_loops, loss_by_ignore_index),
    checks.check_greedy: (
        greedy_by_recursion,
        greedy_with_running_maximum(-float("inf")),
    ),
    checks.check_state_dependencies: (depends_by_loops, depends_by_triangles),
    checks.check_error_cause: (cause_in_one_loop, cause_of_one_error),
}
WRONG = (
    (checks.check_masked_loss, "", loss_with_running_maximum),
    (checks.check_greedy, "", greedy_with_running_maximum(-1e9)),
    (checks.check_error_cause, "", cause_of_many_errors),
)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
