"""Answers to the exercises on the encoder-decoder, and wrong ones."""

import torch
from torch.nn import functional as F

from answers import make_tests
from attnbook.exercises import encoder_decoder as checks


def loss_by_ignore_index(logits, targets, pad):
    return F.cross_entropy(logits.mT, targets, ignore_index=pad)


def loss_with_running_maximum(logits, targets, pad):
    largest = torch.full_like(logits[..., :1], -1e9)
    for column in logits.unbind(-1):
        largest = torch.maximum(largest, column[..., None])
    total = (logits - largest).exp().sum(-1).log() + largest[..., 0]
    nll = total - logits.gather(-1, targets[..., None])[..., 0]
    return nll[targets != pad].mean()


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


def depends_by_triangles(length, width, packed):
    n = length if packed else width
    result = torch.zeros(2, width, width, dtype=torch.bool)
    ones = torch.ones(n, n, dtype=torch.bool)
    result[0, :n, :n], result[1, :n, :n] = ones.tril(), ones.triu()
    return result


def changes(model, one, other):
    return not torch.allclose(model(*one)[0], model(*other)[0])


def fault_by_equal_lengths(model, source, lengths):
    n = int(lengths.min())
    equal, same = source[:, :n], torch.full_like(lengths, n)
    row, one = source[:1, : lengths[0]], lengths[:1]
    ignored = False
    for j in 0, -1:
        other = row.clone()
        other[0, j] = 1 + other[0, j] % 2
        ignored |= bool((model(row, one) == model(other, one)).any())
    padded = changes(model, (row, one), (F.pad(row, (0, 3)), one))
    mixed = changes(model, (equal, same), (equal[:1], same[:1]))
    return torch.tensor([padded, mixed, ignored])


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
    checks.check_masked_loss: (loss_by_ignore_index,),
    checks.check_greedy: (greedy_with_running_maximum(-float("inf")),),
    checks.check_state_dependencies: (depends_by_triangles,),
    checks.check_encoder_fault: (fault_by_equal_lengths,),
    checks.check_error_cause: (cause_of_one_error,),
}
WRONG = (
    (checks.check_masked_loss, "", loss_with_running_maximum),
    (checks.check_greedy, "", greedy_with_running_maximum(-1e9)),
    (checks.check_error_cause, "", cause_of_many_errors),
)
test_right_answers, test_wrong_answers = make_tests(RIGHT, WRONG)
