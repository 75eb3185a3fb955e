"""Wrong answers to the exercises of chapters/01_bottleneck."""

import random

import torch
from torch import nn
from torch.nn import functional as F

from attnbook.exercises import encoder_decoder as checks
from attnbook.training.metrics import edit_distance
from wrong_answers import Wrong
from wrong_answers.common import detached, single, usual


def sorted_tokens(tokens, lengths):
    return tokens.sort(dim=1, descending=True).values


def reversed_at_front(tokens, lengths):
    result = torch.zeros_like(tokens)
    for b, n in enumerate(lengths.tolist()):
        result[b, -n:] = tokens[b, :n].flip(0)
    return result


def fresh_zeros(tokens, lengths):
    result = torch.zeros_like(tokens)
    for b, n in enumerate(lengths.tolist()):
        result[b, :n] = tokens[b, :n].flip(0)
    return result


def one_missing(tokens, lengths):
    result = tokens.clone()
    for b, n in enumerate(lengths.tolist()):
        result[b, : n - 1] = tokens[b, : n - 1].flip(0)
    return result


def stops_too_early(tokens, lengths):
    result = tokens.clone()
    for b, n in enumerate(lengths.tolist()):
        result[b, : n - 1] = tokens[b, 1:n].flip(0)
    return result


def clamped(tokens, lengths):
    mirrored = lengths[:, None] - 1 - torch.arange(tokens.shape[1])
    return tokens.gather(1, mirrored.clamp(min=0))


def in_place_reverse(tokens, lengths):
    for row, n in zip(tokens, lengths.tolist(), strict=True):
        row[:n] = row[:n].flip(0)
    return tokens


def rolled(tokens, lengths):
    turned = tokens.flip(1)
    rows = zip(turned, lengths.tolist(), strict=True)
    return torch.stack([row.roll(-n) for row, n in rows])


def lists(tokens, lengths):
    return [
        row[:n].flip(0) for row, n in zip(tokens, lengths.tolist(), strict=True)
    ]


def off_by_one(states, lengths):
    rows = [s[n - 2] for s, n in zip(states, lengths.tolist(), strict=True)]
    return torch.stack(rows)


def gathered_past(states, lengths):
    index = lengths[:, None, None].expand(-1, -1, states.shape[2])
    return states.gather(1, index).squeeze(1)


def kept_axis(states, lengths):
    index = (lengths - 1)[:, None, None].expand(-1, -1, states.shape[2])
    return states.gather(1, index)


def average(states, lengths):
    rows = zip(states, lengths.tolist(), strict=True)
    return torch.stack([s[:n].mean(0) for s, n in rows])


def strongest(states, lengths):
    rows = zip(states, lengths.tolist(), strict=True)
    return torch.stack([s[:n].max(0).values for s, n in rows])


def cross_indexed(states, lengths):
    return states[:, lengths - 1]


def diagonal_of_batch(states, lengths):
    return states[:, lengths - 1][:, 0]


def last_nonzero(states, lengths):
    ends = [int(s.any(-1).nonzero().max()) for s in states]
    return torch.stack([s[e] for s, e in zip(states, ends, strict=True)])


def two_ends(states, lengths):
    half = states.shape[2] // 2
    rows = torch.arange(len(states))
    return torch.cat(
        [states[rows, lengths - 1, :half], states[:, 0, half:]], dim=-1
    )


def all_places(logits, targets, pad):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def criterion_default(logits, targets, pad):
    return nn.CrossEntropyLoss(ignore_index=0)(logits.mT, targets)


def zeroed_then_mean(logits, targets, pad):
    loss = F.cross_entropy(logits.mT, targets, reduction="none")
    return torch.where(targets == pad, 0.0, loss).mean()


def mean_per_sequence(logits, targets, pad):
    losses = [
        F.cross_entropy(x, y, ignore_index=pad)
        for x, y in zip(logits, targets, strict=True)
    ]
    return torch.stack(losses).mean()


def summed(logits, targets, pad):
    return F.cross_entropy(
        logits.mT, targets, ignore_index=pad, reduction="sum"
    )


def of_probabilities(logits, targets, pad):
    return F.cross_entropy(logits.softmax(-1).mT, targets, ignore_index=pad)


def reshaped_not_turned(logits, targets, pad):
    b, t, v = logits.shape
    return F.cross_entropy(logits.reshape(b, v, t), targets, ignore_index=pad)


def nll_of_logits(logits, targets, pad):
    return F.nll_loss(logits.mT, targets, ignore_index=pad)


def as_a_number(logits, targets, pad):
    return checks.check_masked_loss.solution(logits, targets, pad).item()


def last_place_dropped(logits, targets, pad):
    return checks.check_masked_loss.solution(
        logits[:, :-1], targets[:, :-1], pad
    )


def smoothed(logits, targets, pad):
    return F.cross_entropy(
        logits.mT, targets, ignore_index=pad, label_smoothing=0.1
    )


def per_place(logits, targets, pad):
    return F.cross_entropy(
        logits.mT, targets, ignore_index=pad, reduction="none"
    )


def rate_of(outputs, references, pick, top=None):
    edits = symbols = 0
    for output, accepted in zip(outputs, references, strict=True):
        reference = pick(accepted, output)
        edits += edit_distance(output, reference)
        symbols += len(reference)
    return edits / symbols if top is None else top(edits, symbols)


def only_first(outputs, references):
    return rate_of(outputs, references, lambda accepted, output: accepted[0])


def shortest(outputs, references):
    return rate_of(
        outputs, references, lambda accepted, output: min(accepted, key=len)
    )


def mean_rate(outputs, references):
    rates = [
        min(edit_distance(o, r) / len(r) for r in accepted)
        for o, accepted in zip(outputs, references, strict=True)
    ]
    return sum(rates) / len(rates)


def word_errors(outputs, references):
    pairs = zip(outputs, references, strict=True)
    return sum(o not in accepted for o, accepted in pairs) / len(outputs)


def zipped(outputs, references):
    wrong = symbols = 0
    for output, accepted in zip(outputs, references, strict=True):
        by_reference = [
            (
                sum(a != b for a, b in zip(output, r, strict=False))
                + abs(len(output) - len(r)),
                len(r),
            )
            for r in accepted
        ]
        edits, length = min(by_reference)
        wrong, symbols = wrong + edits, symbols + length
    return wrong / symbols


def cut_to_shorter(outputs, references):
    wrong = symbols = 0
    for output, accepted in zip(outputs, references, strict=True):
        reference = min(accepted, key=lambda r: edit_distance(output, r))
        pairs = zip(output, reference, strict=False)
        wrong += sum(a != b for a, b in pairs)
        symbols += len(reference)
    return wrong / symbols


def longer_below(outputs, references):
    edits = symbols = 0
    for output, accepted in zip(outputs, references, strict=True):
        reference = min(accepted, key=lambda r: edit_distance(output, r))
        edits += edit_distance(output, reference)
        symbols += max(len(output), len(reference))
    return edits / symbols


def bag_of_symbols(outputs, references):
    wrong = symbols = 0
    for output, accepted in zip(outputs, references, strict=True):
        reference = min(accepted, key=lambda r: edit_distance(output, r))
        wrong += len(set(output) ^ set(reference))
        symbols += len(reference)
    return wrong / symbols


def capped_rate(outputs, references):
    return min(checks.check_error_rate.solution(outputs, references), 1.0)


def forgets_state(step, state, start, end, limit):
    said, previous = [], start
    for _ in range(limit):
        logits, _ = step(previous, state)
        previous = int(logits.argmax())
        if previous == end:
            break
        said.append(previous)
    return said


def hears_start(step, state, start, end, limit):
    said = []
    for _ in range(limit):
        logits, state = step(start, state)
        symbol = int(logits.argmax())
        if symbol == end:
            break
        said.append(symbol)
    return said


def appends_end(step, state, start, end, limit):
    said, previous = [], start
    while len(said) < limit and previous != end:
        logits, state = step(previous, state)
        previous = int(logits.argmax())
        said.append(previous)
    return said


def runs_on(step, state, start, end, limit):
    said, previous = [], start
    for _ in range(limit):
        logits, state = step(previous, state)
        previous = int(logits.argmax())
        said.append(previous)
    return said


def filters_end(step, state, start, end, limit):
    return [x for x in runs_on(step, state, start, end, limit) if x != end]


def no_limit(step, state, start, end, limit):
    said, previous = [], start
    while True:
        logits, state = step(previous, state)
        previous = int(logits.argmax())
        if previous == end:
            return said
        said.append(previous)


def samples(step, state, start, end, limit):
    said, previous = [], start
    for _ in range(limit):
        logits, state = step(previous, state)
        weights = logits.softmax(-1).tolist()
        previous = random.choices(range(len(weights)), weights)[0]
        if previous == end:
            break
        said.append(previous)
    return said


def tensors(step, state, start, end, limit):
    said = checks.check_greedy.solution(step, state, start, end, limit)
    return torch.tensor(said)


def list_of_tensors(step, state, start, end, limit):
    said = checks.check_greedy.solution(step, state, start, end, limit)
    return [torch.tensor(x) for x in said] or None


def warmed_up(step, state, start, end, limit):
    _, state = step(start, state)
    return checks.check_greedy.solution(step, state, start, end, limit)


def argmax_of_state(step, state, start, end, limit):
    said, previous = [], start
    for _ in range(limit):
        _, state = step(previous, state)
        previous = int(state.argmax())
        if previous == end:
            break
        said.append(previous)
    return said


ANSWERS = {
    "check_reverse_source": (
        *usual(checks.check_reverse_source),
        Wrong(
            "padding-first",
            "flip of the whole batch",
            "batches of equal lengths",
            lambda tokens, lengths: torch.flip(tokens, dims=(1,)),
        ),
        Wrong(
            "padding-first",
            "padding on the left is what decoder-only models use",
            "the order of the symbols",
            lambda tokens, lengths: tokens[:, range(tokens.shape[1])[::-1]],
        ),
        Wrong(
            "numbers",
            "reversed into a tensor of zeros, counted from the right",
            "batches of equal lengths",
            reversed_at_front,
        ),
        Wrong(
            "padding-zero",
            "a fresh tensor of zeros is filled",
            "padding that is 0",
            fresh_zeros,
        ),
        Wrong(
            "one-too-few",
            "n - 1 because places count from 0",
            "sequences of one symbol",
            one_missing,
        ),
        Wrong(
            "numbers",
            "a slice that begins at 1",
            "sequences of one symbol",
            stops_too_early,
        ),
        Wrong(
            "numbers",
            "clamp to silence the error of gather",
            "the real symbols",
            clamped,
        ),
        Wrong(
            "changed-input",
            "the rows are turned where they stand",
            "every number, once",
            in_place_reverse,
        ),
        Wrong("numbers", "sorted for reversed", "the shape", sorted_tokens),
        Wrong(
            "numbers",
            "flip, then roll the padding to the end, by the wrong number",
            "batches of equal lengths",
            rolled,
        ),
        Wrong(
            "type",
            "a list of sequences without padding",
            "the real symbols",
            lists,
        ),
        Wrong(
            "dtype",
            "ids become floating-point numbers on the way",
            "every number",
            lambda *x: checks.check_reverse_source.solution(*x).float(),
        ),
    ),
    "check_last_state": (
        *usual(checks.check_last_state),
        detached(checks.check_last_state.solution),
        single(checks.check_last_state.solution),
        Wrong(
            "last-place",
            "what most tutorials write",
            "batches of equal lengths",
            lambda states, lengths: states[:, states.shape[1] - 1, :],
        ),
        Wrong(
            "one-too-few",
            "n - 1 and a range that ends before it",
            "nothing, but the shape",
            off_by_one,
        ),
        Wrong(
            "error",
            "lengths used as places",
            "the shape, where a sequence is shorter",
            gathered_past,
        ),
        Wrong("shape", "gather keeps the axis", "every number", kept_axis),
        Wrong(
            "mean-state",
            "mean pooling, as sentence encoders do",
            "sequences of one symbol",
            average,
        ),
        Wrong(
            "largest",
            "max pooling, as sentence encoders do",
            "sequences of one symbol",
            strongest,
        ),
        Wrong(
            "shape",
            "an index of one axis does not pair with the batch",
            "a batch of one",
            cross_indexed,
        ),
        Wrong(
            "first-length-only",
            "the error above, silenced",
            "a batch of one",
            diagonal_of_batch,
        ),
        Wrong(
            "reads-end-from-zeros",
            "pad_packed_sequence fills with 0, so the end shows",
            "states of a packed sequence, nearly always",
            last_nonzero,
        ),
        Wrong(
            "numbers",
            "it is right for a network of two directions",
            "the first half",
            two_ends,
        ),
        Wrong(
            "longest-only",
            "the batch is cut to its longest sequence first",
            "batches of equal lengths",
            lambda states, lengths: states[:, : max(lengths)][:, -1],
        ),
    ),
    "check_masked_loss": (
        *usual(checks.check_masked_loss),
        detached(checks.check_masked_loss.solution),
        single(checks.check_masked_loss.solution),
        Wrong(
            "padding-counted",
            "cross_entropy with its defaults",
            "batches of equal lengths",
            all_places,
        ),
        Wrong(
            "pad-is-zero",
            "ignore_index=0, copied",
            "padding numbered 0",
            criterion_default,
        ),
        Wrong(
            "divided-by-all",
            "masked, then .mean(), as in the TensorFlow NMT tutorial",
            "batches of equal lengths",
            zeroed_then_mean,
        ),
        Wrong(
            "mean-of-means",
            "a loop over the batch",
            "batches of equal lengths",
            mean_per_sequence,
        ),
        Wrong("sum", 'reduction="sum"', "one symbol", summed),
        Wrong(
            "softmax-twice",
            "the model ends in softmax, the loss begins with one",
            "which symbol is the likeliest",
            of_probabilities,
        ),
        Wrong(
            "numbers",
            "reshape to the (B, V, T) that cross_entropy asks for",
            "sequences of one symbol",
            reshaped_not_turned,
        ),
        Wrong(
            "no-softmax",
            "nll_loss takes log-probabilities, and gets logits",
            "the order of the symbols",
            nll_of_logits,
        ),
        Wrong(
            "type",
            ".item() for the progress bar",
            "the number",
            as_a_number,
        ),
        Wrong(
            "nan",
            "the last target is dropped, as when targets are shifted",
            "nothing here",
            last_place_dropped,
        ),
        Wrong(
            "numbers",
            "label smoothing, as in the Transformer",
            "that it falls",
            smoothed,
        ),
        Wrong("shape", 'reduction="none"', "the numbers", per_place),
    ),
    "check_error_rate": (
        *usual(checks.check_error_rate),
        Wrong(
            "first-reference",
            "most data have one reference",
            "one reference a word",
            only_first,
        ),
        Wrong(
            "shortest-reference",
            "the first in a sorted list, which is the shortest",
            "one reference a word",
            shortest,
        ),
        Wrong(
            "mean-of-words",
            "a mean over words",
            "words of equal length",
            mean_rate,
        ),
        Wrong(
            "whole-words",
            "the word error rate, which is the other number people report",
            "a perfect output",
            word_errors,
        ),
        Wrong(
            "in-place",
            "zip instead of an alignment",
            "words with symbols replaced",
            zipped,
        ),
        Wrong(
            "numbers",
            "zip stops at the shorter",
            "words of the right length",
            cut_to_shorter,
        ),
        Wrong(
            "numbers",
            "divided by the longer of both, to stay below 1",
            "outputs that are not longer than asked",
            longer_below,
        ),
        Wrong(
            "numbers",
            "sets of symbols are compared, not sequences",
            "a perfect output",
            bag_of_symbols,
        ),
        Wrong(
            "capped",
            "a rate above 1 looks like a bug",
            "outputs that are not longer than asked",
            capped_rate,
        ),
        Wrong(
            "all-references",
            "references are flattened",
            "one reference a word",
            lambda outputs, references: (
                sum(
                    edit_distance(o, r)
                    for o, accepted in zip(outputs, references, strict=True)
                    for r in accepted
                )
                / sum(len(r) for accepted in references for r in accepted)
            ),
        ),
    ),
    "check_greedy": (
        *usual(checks.check_greedy),
        Wrong(
            "state-lost",
            "tensorflow/tensorflow 38248: the NMT tutorial's decoder never "
            "receives its previous state",
            "the first symbol",
            forgets_state,
        ),
        Wrong(
            "always-start",
            "`previous` is never assigned",
            "the first symbol",
            hears_start,
        ),
        Wrong(
            "end-included",
            "the loop tests for the end at its top",
            "every symbol before the end",
            appends_end,
        ),
        Wrong(
            "never-ends",
            "a loop of fixed length, as in batched decoding",
            "every symbol before the end",
            runs_on,
        ),
        Wrong(
            "length",
            "the end is struck out afterwards, and what follows it stays",
            "every symbol before the end",
            filters_end,
        ),
        Wrong(
            "no-limit",
            "a trained model ends by itself, so why a limit?",
            "a decoder that ends",
            no_limit,
        ),
        Wrong(
            "random",
            "sampling for choosing",
            "the likely symbols, often",
            samples,
        ),
        Wrong(
            "type",
            "a tensor of ids, ready for the next model",
            "every symbol",
            tensors,
        ),
        Wrong(
            "type",
            "argmax without int",
            "every symbol",
            list_of_tensors,
        ),
        Wrong(
            "numbers",
            "one step too many at the beginning",
            "nothing, but it looks like speech",
            warmed_up,
        ),
        Wrong(
            "numbers",
            "the state is taken for the logits",
            "nothing",
            argmax_of_state,
        ),
        Wrong(
            "one-too-many",
            "<= limit",
            "a decoder that ends",
            lambda step, state, start, end, limit: checks.check_greedy.solution(
                step, state, start, end, limit + 1
            ),
        ),
    ),
}
