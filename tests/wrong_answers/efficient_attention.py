"""Wrong answers to the exercises of chapters/12_efficient_attention."""

import torch
from torch.nn.functional import elu

from attnbook.exercises import efficient_attention as checks
from attnbook.exercises.efficient_attention.delta_step import delta_step
from attnbook.exercises.efficient_attention.linear_attention import (
    linear_attention,
)
from attnbook.exercises.efficient_attention.linear_fault import linear_fault
from attnbook.exercises.efficient_attention.longformer_mask import (
    longformer_mask,
)
from attnbook.exercises.efficient_attention.memory_kind import memory_kind
from attnbook.exercises.efficient_attention.pattern_counts import (
    pattern_counts,
)
from attnbook.exercises.efficient_attention.recurrent_step import (
    recurrent_step,
)
from attnbook.exercises.efficient_attention.sink_window import sink_window
from wrong_answers import Wrong, make
from wrong_answers.make import Answers, collect_answers

LINEAR = Answers(checks.check_linear_attention, make.detached, make.in_double)
LINEAR += (
    Wrong(
        "shape",
        "heads are averaged, as in a picture of the weights",
        "one head",
        lambda q, k, v: linear_attention(q, k, v).mean(1, keepdim=True),
    ),
    Wrong(
        "numbers",
        "1e-3 is added to the divisor, as an epsilon against 0",
        "almost every digit",
        lambda q, k, v: linear_attention(q, k, v) / 1.001,
    ),
)


@LINEAR.wrong("numbers", "the first chunk")
def chunks_alone(query, key, value):
    """Chunks of 4 whose states are never carried on."""
    parts = zip(*(x.split(4, 2) for x in (query, key, value)), strict=True)
    return torch.cat([linear_attention(*x) for x in parts], 2)


@LINEAR.wrong("numbers", "the shape, and the first position")
def state_divided_too_early(query, key, value):
    """Each value is divided by its own weight's sum before it is added."""
    query, key = elu(query) + 1, elu(key) + 1
    state = (key[..., None] * value[..., None, :]).cumsum(2)
    sums = key.cumsum(2).sum(-1, keepdim=True)
    return (query[..., None, :] @ state)[..., 0, :] / sums


@LINEAR.wrong("numbers", "one head")
def one_state_for_all_heads(query, key, value):
    """The state is summed over the heads."""
    query, key = elu(query) + 1, elu(key) + 1
    weights = (query @ key.mT).tril()
    summed = (weights @ value).sum(1, keepdim=True).expand_as(value)
    return summed / weights.sum((1, 3))[:, None, :, None]


STEP = Answers(
    checks.check_recurrent_step, make.detached, make.in_double, make.first_alone
)
STEP += (
    Wrong(
        "type",
        "the normalizer is forgotten in the last line",
        "the output and the state",
        lambda *x: recurrent_step(*x)[:2],
    ),
)


@STEP.wrong("changed-input", "every number")
def updated_in_place(state, normalizer, query, key, value):
    """The state is updated in place, as fast code does."""
    phi = elu(key) + 1
    found = recurrent_step(state, normalizer, query, key, value)
    with torch.no_grad():
        state += phi[..., None] * value[..., None, :]
    return found


@STEP.wrong("numbers", "the output")
def state_normalized(state, normalizer, query, key, value):
    """The state is divided, so that it is an average."""
    output, state, normalizer = recurrent_step(state, normalizer, query, key, value)
    return output, state / normalizer[..., None], normalizer


DELTA = Answers(
    checks.check_delta_step, make.detached, make.in_double, make.first_alone
)
DELTA += (
    Wrong(
        "numbers",
        "the value is written twice, once before and once after reading",
        "beta = 0, and beta = 1",
        lambda s, q, k, v, b: delta_step(delta_step(s, q, k, v, b)[1], q, k, v, b),
    ),
    Wrong(
        "numbers",
        "beta is the sigmoid of beta, as in a layer that projects it",
        "the shapes",
        lambda s, q, k, v, b: delta_step(s, q, k, v, b.sigmoid()),
    ),
)


@DELTA.wrong("changed-input", "every number")
def written_in_place(state, query, key, value, beta):
    """The memory is written in place, as fast code does."""
    found = delta_step(state, query, key, value, beta)
    with torch.no_grad():
        state.copy_(found[1] + 1)
    return found


LONGFORMER = Answers(checks.check_longformer_mask, make.with_batch_and_heads)
LONGFORMER += (
    Wrong(
        "numbers",
        "only the first global position is used",
        "one global position",
        lambda n, reach, chosen: longformer_mask(n, reach, chosen[:1]),
    ),
    Wrong(
        "numbers",
        "positions are counted from 1",
        "a window alone",
        lambda n, reach, chosen: longformer_mask(
            n, reach, [max(p - 1, 0) for p in chosen]
        ),
    ),
    Wrong(
        "numbers",
        "all positions up to the last global one are global",
        "the first position global",
        lambda n, reach, chosen: longformer_mask(
            n, reach, [*range(max(chosen, default=-1) + 1)]
        ),
    ),
)


SINKS = Answers(checks.check_sink_window, make.with_batch_and_heads)
SINKS += (
    Wrong(
        "numbers",
        "one sink is enough: the number is not used",
        "one sink",
        lambda n, window, sinks: sink_window(n, window, min(sinks, 1)),
    ),
    Wrong(
        "numbers",
        "the window begins after the sinks, wherever it is",
        "sequences shorter than the window",
        lambda n, window, sinks: sink_window(n, window + sinks, sinks),
    ),
    Wrong(
        "dtype",
        "masks of 8 bits, from before PyTorch 1.2",
        "every number",
        lambda *x: sink_window(*x).to(torch.uint8),
    ),
)


COUNTS = Answers(checks.check_pattern_counts, make.without_the_last)
COUNTS += (
    Wrong(
        "numbers",
        "keys and scores are exchanged",
        "the receptive field",
        lambda *sizes: [pattern_counts(*sizes)[i] for i in (1, 0, 2, 3)],
    ),
    Wrong(
        "numbers",
        "the receptive field leaves out the position itself",
        "the other counts",
        lambda *sizes: [x - (i == 2) for i, x in enumerate(pattern_counts(*sizes))],
    ),
    Wrong(
        "numbers",
        "scores are counted for both directions",
        "the other counts",
        lambda *sizes: [
            2 * x if i == 1 else x for i, x in enumerate(pattern_counts(*sizes))
        ],
    ),
)


@COUNTS.wrong("numbers", "one layer")
def window_to_the_power_of_layers(length, window, step, sinks, layers):
    """The receptive field is multiplied by the window in each layer."""
    counts = pattern_counts(length, window, step, sinks, layers)
    counts[2] = min(length, window**layers)
    return counts


@COUNTS.wrong("numbers", "patterns that reach every input")
def length_instead_of_none(length, window, step, sinks, layers):
    """Where no number of layers is enough, the length is returned."""
    counts = pattern_counts(length, window, step, sinks, layers)
    return [*counts[:3], counts[3] or length]


FAULT = Answers(checks.check_linear_fault, *make.DECISION)


@FAULT.wrong("error", "nothing")
def fault_with_a_mask(attention, query, key, value):
    """A mask is passed, which the function does not take."""
    n = len(query)
    out = attention(query, key, value, torch.ones(n, n).tril())
    return int(out.isnan().any())


@FAULT.wrong("numbers", "every fault")
def never_right(attention, query, key, value):
    """A right function is taken for one whose state is detached."""
    return linear_fault(attention, query, key, value) or 6


@FAULT.wrong("numbers", "right functions, and some faults")
def leaks_only(attention, query, key, value):
    """Only a leak from later positions is looked for, as in chapter 7."""
    later = value.clone()
    later[-1] += 1
    one, two = (attention(query, key, x)[:-1] for x in (value, later))
    return int((one - two).abs().max() > 1e-4)


@FAULT.wrong("numbers", "what depends on no state")
def sums_only(attention, query, key, value):
    """With values of ones, all outputs should be 1; nothing else is tried."""
    ones = torch.ones(20, 1)
    zero = torch.zeros(20, 3)
    first = attention(zero, zero, ones)[0, 0]
    for number, sum_ in ((1, 1 / 20), (2, 0.0), (3, 1 / 3)):
        if abs(float(first) - sum_) < 1e-4:
            return number
    return 0


KIND = Answers(checks.check_memory_kind, *make.DECISION)


@KIND.wrong("error", "nothing")
def kind_with_long_keys(memory, keys, values):
    """Keys of length 10 are written, to make the softmax sharp."""
    return int(memory(keys[0], 10 * keys, values).norm() > 1)


@KIND.wrong("numbers", "softmax attention and states that keep everything")
def kind_by_age(memory, keys, values):
    """Only whether an old value still counts is tried."""
    key, many = torch.tensor([1.0, 0.0]), torch.zeros(12, 1)
    many[0] = 1.0
    found = float(memory(key, key.expand(12, 2), many))
    return 2 if found > 0.99 else 0 if found > 0.05 else 1


@KIND.wrong("numbers", "averages and sums")
def kind_without_the_delta_rule(memory, keys, values):
    """The delta rule is unknown: what is no average is a sum, or decays."""
    found = memory_kind(memory, keys, values)
    return 4 if found == 3 else found


@KIND.wrong("numbers", "the states")
def kind_by_sharpness(memory, keys, values):
    """A window is taken for attention that is sharp."""
    found = memory_kind(memory, keys, values)
    return 3 if found == 1 else found


ANSWERS = collect_answers(checks, vars())
