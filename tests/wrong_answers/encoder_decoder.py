"""Wrong answers to the exercises of chapters/01_bottleneck."""

import random

import torch
from torch.nn import functional as F

from attnbook.exercises import encoder_decoder as checks
from attnbook.exercises.encoder_decoder import encoder_fault as fault
from attnbook.exercises.encoder_decoder import error_cause as cause
from attnbook.training.metrics import edit_distance
from wrong_answers import Wrong, make
from wrong_answers.make import Answers, collect_answers


def runs_on(step, state, start, end, limit):
    said, previous = [], start
    for _ in range(limit):
        logits, state = step(previous, state)
        previous = int(logits.argmax())
        said.append(previous)
    return said


REVERSE_SOURCE = Answers(checks.check_reverse_source)
REVERSE_SOURCE += (
    Wrong(
        "dtype",
        "ids become floating-point numbers on the way",
        "every number",
        lambda *x: checks.check_reverse_source.solution(*x).float(),
    ),
)


@REVERSE_SOURCE.wrong("numbers", "batches of equal lengths")
def reversed_at_front(tokens, lengths):
    """Reversed into a tensor of zeros, counted from the right."""
    result = torch.zeros_like(tokens)
    for b, n in enumerate(lengths.tolist()):
        result[b, -n:] = tokens[b, :n].flip(0)
    return result


@REVERSE_SOURCE.wrong("numbers", "sequences of one symbol")
def stops_too_early(tokens, lengths):
    """A slice that begins at 1."""
    result = tokens.clone()
    for b, n in enumerate(lengths.tolist()):
        result[b, : n - 1] = tokens[b, 1:n].flip(0)
    return result


@REVERSE_SOURCE.wrong("numbers", "the real symbols")
def clamped(tokens, lengths):
    """clamp to silence the error of gather."""
    mirrored = lengths[:, None] - 1 - torch.arange(tokens.shape[1])
    return tokens.gather(1, mirrored.clamp(min=0))


@REVERSE_SOURCE.wrong("changed-input", "every number, once")
def in_place_reverse(tokens, lengths):
    """The rows are turned where they stand."""
    for row, n in zip(tokens, lengths.tolist(), strict=True):
        row[:n] = row[:n].flip(0)
    return tokens


@REVERSE_SOURCE.wrong("numbers", "the shape")
def sorted_tokens(tokens, lengths):
    """Sorted for reversed."""
    return tokens.sort(dim=1, descending=True).values


@REVERSE_SOURCE.wrong("numbers", "batches of equal lengths")
def rolled(tokens, lengths):
    """flip, then roll the padding to the end, by the wrong number."""
    turned = tokens.flip(1)
    rows = zip(turned, lengths.tolist(), strict=True)
    return torch.stack([row.roll(-n) for row, n in rows])


@REVERSE_SOURCE.wrong("type", "the real symbols")
def lists(tokens, lengths):
    """A list of sequences without padding."""
    return [row[:n].flip(0) for row, n in zip(tokens, lengths.tolist(), strict=True)]


LAST_STATE = Answers(checks.check_last_state, make.detached, make.in_double)


@LAST_STATE.wrong("error", "the shape, where a sequence is shorter")
def gathered_past(states, lengths):
    """Lengths used as places."""
    index = lengths[:, None, None].expand(-1, -1, states.shape[2])
    return states.gather(1, index).squeeze(1)


@LAST_STATE.wrong("shape", "every number")
def kept_axis(states, lengths):
    """Gather keeps the axis."""
    index = (lengths - 1)[:, None, None].expand(-1, -1, states.shape[2])
    return states.gather(1, index)


@LAST_STATE.wrong("shape", "a batch of one")
def cross_indexed(states, lengths):
    """An index of one axis does not pair with the batch."""
    return states[:, lengths - 1]


@LAST_STATE.wrong("numbers", "the first half")
def two_ends(states, lengths):
    """It is right for a network of two directions."""
    half = states.shape[2] // 2
    rows = torch.arange(len(states))
    return torch.cat([states[rows, lengths - 1, :half], states[:, 0, half:]], dim=-1)


MASKED_LOSS = Answers(checks.check_masked_loss, make.detached, make.in_double)


@MASKED_LOSS.wrong("mean-of-means", "batches of equal lengths")
def mean_per_sequence(logits, targets, pad):
    """A loop over the batch."""
    losses = [
        F.cross_entropy(x, y, ignore_index=pad)
        for x, y in zip(logits, targets, strict=True)
    ]
    return torch.stack(losses).mean()


@MASKED_LOSS.wrong("numbers", "sequences of one symbol")
def reshaped_not_turned(logits, targets, pad):
    """reshape to the (B, V, T) that cross_entropy asks for."""
    b, t, v = logits.shape
    return F.cross_entropy(logits.reshape(b, v, t), targets, ignore_index=pad)


@MASKED_LOSS.wrong("type", "the number")
def as_a_number(logits, targets, pad):
    """.item() for the progress bar."""
    return checks.check_masked_loss.solution(logits, targets, pad).item()


@MASKED_LOSS.wrong("nan", "nothing here")
def last_place_dropped(logits, targets, pad):
    """The last target is dropped, as when targets are shifted."""
    return checks.check_masked_loss.solution(logits[:, :-1], targets[:, :-1], pad)


@MASKED_LOSS.wrong("numbers", "that it falls")
def smoothed(logits, targets, pad):
    """Label smoothing, as in the Transformer."""
    return F.cross_entropy(logits.mT, targets, ignore_index=pad, label_smoothing=0.1)


@MASKED_LOSS.wrong("shape", "the numbers")
def per_place(logits, targets, pad):
    """reduction="none"."""
    return F.cross_entropy(logits.mT, targets, ignore_index=pad, reduction="none")


def find_nearest(outputs, references):
    """Yield each output and the nearest of its references."""
    for output, accepted in zip(outputs, references, strict=True):
        yield output, min(accepted, key=lambda r: edit_distance(output, r))


ERROR_RATE = Answers(checks.check_error_rate)


@ERROR_RATE.wrong("numbers", "words of the right length")
def cut_to_shorter(outputs, references):
    """zip stops at the shorter."""
    wrong = symbols = 0
    for output, reference in find_nearest(outputs, references):
        pairs = zip(output, reference, strict=False)
        wrong += sum(a != b for a, b in pairs)
        symbols += len(reference)
    return wrong / symbols


@ERROR_RATE.wrong("numbers", "outputs that are not longer than asked")
def longer_below(outputs, references):
    """Divided by the longer of both, to stay below 1."""
    edits = symbols = 0
    for output, reference in find_nearest(outputs, references):
        edits += edit_distance(output, reference)
        symbols += max(len(output), len(reference))
    return edits / symbols


@ERROR_RATE.wrong("numbers", "a perfect output")
def bag_of_symbols(outputs, references):
    """Sets of symbols are compared, not sequences."""
    wrong = symbols = 0
    for output, reference in find_nearest(outputs, references):
        wrong += len(set(output) ^ set(reference))
        symbols += len(reference)
    return wrong / symbols


GREEDY = Answers(checks.check_greedy)


@GREEDY.wrong("length", "every symbol before the end")
def filters_end(step, state, start, end, limit):
    """The end is struck out afterwards, and what follows it stays."""
    return [x for x in runs_on(step, state, start, end, limit) if x != end]


@GREEDY.wrong("random", "the likely symbols, often")
def samples(step, state, start, end, limit):
    """Sampling for choosing."""
    said, previous = [], start
    for _ in range(limit):
        logits, state = step(previous, state)
        weights = logits.softmax(-1).tolist()
        previous = random.choices(range(len(weights)), weights)[0]
        if previous == end:
            break
        said.append(previous)
    return said


@GREEDY.wrong("type", "every symbol")
def batch_of_one(step, state, start, end, limit):
    """A batch of one sequence of ids, ready for the next model."""
    said = checks.check_greedy.solution(step, state, start, end, limit)
    return torch.tensor([said])


@GREEDY.wrong("type", "every symbol")
def list_of_tensors(step, state, start, end, limit):
    """argmax with keepdim, without int."""
    said = checks.check_greedy.solution(step, state, start, end, limit)
    return [torch.tensor([x]) for x in said] or None


@GREEDY.wrong("numbers", "nothing, but it looks like speech")
def warmed_up(step, state, start, end, limit):
    """One step too many at the beginning."""
    _, state = step(start, state)
    return checks.check_greedy.solution(step, state, start, end, limit)


@GREEDY.wrong("numbers", "nothing")
def argmax_of_state(step, state, start, end, limit):
    """The state is taken for the logits."""
    said, previous = [], start
    for _ in range(limit):
        _, state = step(previous, state)
        previous = int(state.argmax())
        if previous == end:
            break
        said.append(previous)
    return said


STATE_DEPENDENCIES = Answers(checks.check_state_dependencies)


@STATE_DEPENDENCIES.wrong("type", "every entry")
def depends_as_list(length, width, packed):
    """Nested lists, as one writes a table by hand."""
    return checks.check_state_dependencies.solution(length, width, packed).tolist()


@STATE_DEPENDENCIES.wrong("shape", "every entry")
def depends_by_batch_axis(length, width, packed):
    """The direction put last, as PyTorch concatenates states."""
    result = checks.check_state_dependencies.solution(length, width, packed)
    return result.permute(1, 2, 0)


@STATE_DEPENDENCIES.wrong("numbers", "everything packed")
def backward_from_true_end_unpacked(length, width, packed):
    """Padding of zeros thought harmless for the backward direction."""
    result = checks.check_state_dependencies.solution(length, width, packed)
    if not packed:
        result = result.clone()
        result[1] &= torch.arange(width) < length
    return result


@STATE_DEPENDENCIES.wrong("numbers", "everything packed")
def forward_stops_unpacked(length, width, packed):
    """Padding of zeros thought harmless for the forward direction."""
    result = checks.check_state_dependencies.solution(length, width, packed)
    if not packed:
        result = result.clone()
        result[0] &= torch.arange(width) < length
    return result


def by_position_loop(skip):
    def answer(length, width, packed):
        result = torch.zeros(2, width, width, dtype=torch.bool)
        for i in range(width):
            for j in range(width):
                hidden = packed and (i >= length or j >= length)
                result[0, i, j] = j <= i - skip and not hidden
                result[1, i, j] = j >= i + skip and not hidden
        return result

    return answer


@STATE_DEPENDENCIES.wrong("numbers", "everything without padding")
def longer_by_one(length, width, packed):
    """The end symbol counted into the length."""
    return checks.check_state_dependencies.solution(
        min(length + 1, width), width, packed
    )


def solve_fault(model, source, lengths):
    return checks.check_encoder_fault.solution(model, source, lengths)


ENCODER_FAULT = Answers(checks.check_encoder_fault)


@ENCODER_FAULT.wrong("both-at-once", "unread symbols")
def fault_by_first_row(model, source, lengths):
    """One comparison for two faults, on one sequence."""
    n = int(lengths[0])
    alone = model(source[:1, :n], lengths[:1])
    differs = not torch.allclose(alone, model(source, lengths)[:1])
    ignores = fault.ignores_symbol(model, source, lengths)
    return torch.tensor([differs, differs, ignores])


@ENCODER_FAULT.wrong("type", "encoders with one")
def fault_as_number(model, source, lengths):
    """The number of the fault."""
    return int(solve_fault(model, source, lengths).int().argmax())


@ENCODER_FAULT.wrong("type", "sound encoders")
def fault_as_truth(model, source, lengths):
    """Sound or not."""
    return bool(solve_fault(model, source, lengths).any())


@ENCODER_FAULT.wrong("type", "every test")
def fault_as_flags(model, source, lengths):
    """Ones and zeros in a list."""
    return [int(x) for x in solve_fault(model, source, lengths)]


@ENCODER_FAULT.wrong("always-sound", "sound encoders")
def fault_by_shape(model, source, lengths):
    """Looks at shapes only."""
    mixed = model(source, lengths).shape[0] != len(source)
    return torch.tensor([False, mixed, False])


@ENCODER_FAULT.wrong("always-sound", "sound encoders")
def fault_by_nan(model, source, lengths):
    """Looks for NaN only."""
    broken = bool(model(source, lengths).isnan().any())
    return torch.tensor([broken, broken, broken])


@ENCODER_FAULT.wrong("numbers", "nothing")
def fault_inverted(model, source, lengths):
    """Sound for faulty."""
    return ~solve_fault(model, source, lengths)


@ENCODER_FAULT.wrong("unread-missed", "padding and mixed sequences")
def fault_by_norm(model, source, lengths):
    """The contexts compared as a whole."""
    changed = source.clone()
    changed[:, 0] = changed[:, 0] % (fault.SYMBOLS - 1) + 1
    before, after = model(source, lengths), model(changed, lengths)
    found = solve_fault(model, source, lengths)
    found[2] = torch.allclose(before, after)
    return found


def compare_runs(step, state, start, target):
    """Return the errors with the own and with the true history."""
    own = cause.generate_freely(step, state, start, len(target))
    forced = cause.predict_with_true_history(step, state, start, target)
    return [cause.find_errors(made, target) for made in (own, forced)]


ERROR_CAUSE = Answers(checks.check_error_cause)


@ERROR_CAUSE.wrong("missing-always", "decoders that lack information")
def cause_by_first_error_too(step, state, start, target):
    """The first error is in both runs, and is counted."""
    _, forced = compare_runs(step, state, start, target)
    return not forced


@ERROR_CAUSE.wrong("missing-always", "decoders that lack information")
def cause_unshifted(step, state, start, target):
    """The target is fed without the start symbol."""
    own, _ = compare_runs(step, state, start, target)
    shifted = [*target[1:], target[-1]]
    made = cause.predict_with_true_history(step, state, target[0], shifted)
    return not any(t > own[0] for t in cause.find_errors(made, target))


@ERROR_CAUSE.wrong("missing-always", "decoders that lack information")
def cause_by_set(step, state, start, target):
    """The symbols compared without their order."""
    own = set(cause.generate_freely(step, state, start, len(target)))
    return own == set(target)


@ERROR_CAUSE.wrong("numbers", "decoders misled early")
def cause_by_many(step, state, start, target):
    """Many errors taken for a chain of errors."""
    own, _ = compare_runs(step, state, start, target)
    return len(own) > len(target) / 2


@ERROR_CAUSE.wrong("type", "the cause")
def cause_as_number(step, state, start, target):
    """1 for True."""
    return int(checks.check_error_cause.solution(step, state, start, target))


@ERROR_CAUSE.wrong("type", "the cause")
def cause_as_text(step, state, start, target):
    """The name of the cause."""
    own = checks.check_error_cause.solution(step, state, start, target)
    return "own history" if own else "missing information"


@ERROR_CAUSE.wrong("type", "both runs")
def cause_as_pair(step, state, start, target):
    """Both counts of errors."""
    own, forced = compare_runs(step, state, start, target)
    return [len(own), len(forced)]


@ERROR_CAUSE.wrong("own-history-always", "decoders misled by their history")
def cause_by_length(step, state, start, target):
    """Lengths compared instead of symbols."""
    made = cause.generate_freely(step, state, start, len(target))
    return len(made) == len(target)


STATE_DEPENDENCIES += (
    Wrong(
        "own-symbol-missing",
        "the state before the step taken for the one after it",
        "the triangles' shape",
        by_position_loop(1),
    ),
    Wrong(
        "numbers",
        "a step that reads one symbol ahead",
        "the triangles' shape",
        by_position_loop(-1),
    ),
    Wrong(
        "dtype",
        "1 and 0 for True and False",
        "every entry",
        lambda *x: checks.check_state_dependencies.solution(*x).int(),
    ),
)

ANSWERS = collect_answers(checks, vars())
