"""The exercises of the chapter on the encoder-decoder with one context vector.

Source: Sutskever, Vinyals and Le (2014), section 3.2 (greedy search is a beam of one;
    the loss), https://arxiv.org/abs/1409.3215; Schuster and Paliwal (1997), section
    II-B (two directions), https://doi.org/10.1109/78.650093; Ranzato et al. (2016),
    section 1 (exposure bias), https://arxiv.org/abs/1511.06732.
Axes: B batch, T target symbols, S source symbols, V symbols of the vocabulary
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnbook.exercises.declare import Case, Exercise

# Logits multiplied by the first and lowered by the second all lie below -2^43, and
# the most probable symbol is the same.
LARGE, LOWER = 2.0**40, 2.0**45


def masked_loss(
    logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"], pad: int
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy, in nats, of the symbols that are real."""
    nll = -logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    return nll[targets != pad].mean()


def masked_loss_cases(draw):
    def inputs(lengths, width, symbols, pad=0):
        lengths = torch.tensor(lengths)
        ids = draw.integers(1, symbols - 1, len(lengths), width)
        ids[ids == pad] = 2
        padding = torch.arange(width) >= lengths[:, None]
        logits = draw.normal(len(lengths), width, symbols)
        return logits, ids.masked_fill(padding, pad), pad

    logits, targets, pad = inputs([draw.whole(2, 4), 5, 1], 5, 7)
    low = -1e30 * (1.0 + logits.argsort(-1).argsort(-1))
    between = targets.index_fill(1, torch.tensor([1]), pad)
    yield "with one symbol", *inputs([1], 1, 3)
    yield "without padding", *inputs([5, 5], 5, 7)
    yield "with padding", logits, targets, pad
    yield "with 3 as the padding symbol", *inputs([4, 2], 4, 11, pad=3)
    yield "with as many symbols as positions", *inputs([5, 2], 5, 5)
    yield "with large logits", logits * 200, targets, pad
    yield Case("with logits far below zero", (low, targets, pad), gradient=False)
    yield "with padding between symbols", logits, between, pad


check_masked_loss = Exercise(
    masked_loss,
    masked_loss_cases,
    stars=2,
    minutes=15,
    section="Cross-entropy, in nats",
    title="mean loss without padding",
    returns=("loss",),
    mistakes={
        "padding-counted": (
            "the loss of padding positions is counted",
            "[targets != pad] → ",
        ),
        "divided-by-all": (
            "the sum leaves padding out but is divided by the number of all positions",
            ".mean() → .sum() / targets.numel()",
        ),
        "mean-of-means": (
            "each sequence is averaged first; every real symbol should weigh the same",
            "nll[targets != pad].mean() → ((nll * (targets != pad)).sum(1) "
            "/ (targets != pad).sum(1)).mean()",
        ),
        "wrong-axis": (
            "the softmax runs over another axis; it should run over the symbols",
            [
                ".log_softmax(-1) → .log_softmax(1)",
                ".log_softmax(-1) → .log_softmax(0)",
                "logits.log_softmax(-1) → logits.masked_fill("
                "(targets == pad)[..., None], -torch.inf).log_softmax(1)",
                lambda z, y, pad: F.nll_loss(
                    z.flatten(0, 1).log_softmax(0), y.flatten(), ignore_index=pad
                ),
            ],
        ),
        "softmax-twice": (
            "a softmax is applied before the cross-entropy, which already applies one",
            "logits.log_softmax → logits.softmax(-1).log_softmax",
        ),
        "unstable": (
            "an exponential overflows or rounds to 0; use `log_softmax`",
            [
                ".log_softmax(-1) → .exp().div(logits.exp().sum(-1, keepdim=True))"
                ".log()",
                "log_softmax(-1) → softmax(-1).log()",
            ],
        ),
    },
)


def greedy(
    step: Callable[[int, Tensor], tuple[Tensor, Tensor]],
    state: Tensor,
    start: int,
    end: int,
    limit: int,
) -> list[int]:
    """Return the most probable symbol of each step, without `end`."""
    output, previous = [], start
    while len(output) < limit:
        logits, state = step(previous, state)
        previous = int(logits.argmax())
        if previous == end:
            break
        output.append(previous)
    return output


@dataclass
class Step:
    """A small recurrent decoder of 7 symbols, which stops after 400 calls."""

    word: Tensor
    turn: Tensor
    speak: Tensor
    lower: float = 0.0
    calls: int = 0

    def __call__(self, previous: int, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits (V,) and the next state (N,)."""
        self.calls += 1
        if self.calls > 400:
            raise RuntimeError("`step` was called 400 times")
        state = torch.tanh(self.word[previous] + self.turn @ state)
        return self.speak @ state - self.lower, state


def greedy_cases(draw):
    ends, runs = [], []
    while not (ends and runs):
        step = Step(draw.normal(7, 5), 2 * draw.normal(5, 5), draw.normal(7, 5))
        state = draw.normal(5)
        output = greedy(step, state, 1, 2, 9)
        if len(set(output)) >= 3:
            (ends if len(output) < 9 else runs).append((step, state, output))
    (*first, output), (step, state, words) = ends[0], runs[0]
    other_end = next(word for word in reversed(words) if word != 1)
    low = Step(step.word, step.turn, LARGE * step.speak, LOWER)
    yield "with a limit of one symbol", step, state, 1, 2, 1
    yield "with a decoder that predicts `end`", *first, 1, 2, 9
    yield "with a limit met exactly", *first, 1, 2, len(output)
    yield "with one that does not predict `end`", step, state, 1, 2, 9
    yield "with another number for the end", step, state, 1, other_end, 9
    yield "with another number for the start", step, state, 3, 2, 9
    yield "with logits far below zero", low, state, 1, 2, 9
    yield "with 150 symbols and no end among them", step, state, 1, 7, 150
    yield "with a limit of 0", step, state, 1, 2, 0


check_greedy = Exercise(
    greedy,
    greedy_cases,
    stars=2,
    minutes=20,
    section="Generation: greedy search",
    title="greedy decoding",
    returns=("symbols",),
    mistakes={
        "always-start": (
            "every step receives `start`; it should receive the symbol predicted last",
            "step(previous, state) → step(start, state)",
        ),
        "state-lost": (
            "the state that a step returns is discarded; the next step should get it",
            "logits, state = → logits, _ =",
        ),
        "never-ends": (
            "decoding does not stop at `end`",
            "previous == end → previous is None",
        ),
        "no-limit": (
            "decoding does not stop at `limit`",
            "len(output) < limit → True",
        ),
        "end-included": (
            "`end` is included in the output",
            "break → return [*output, end]",
        ),
        "one-too-many": (
            "it generates one symbol more than `limit`",
            "< limit → <= limit",
        ),
    },
)


def state_dependencies(length: int, width: int, packed: bool) -> Bool[Tensor, "2 S S"]:
    """Return whether each state depends on each input, by direction.

    Args:
        length: how many symbols are real.
        width: positions S, padding included.
        packed: whether the batch is packed.
    """
    position = torch.arange(width)
    forward = position[:, None] >= position
    depends = torch.stack([forward, forward.mT])
    real = position < length
    return depends & real & real[:, None] if packed else depends


def state_dependencies_cases(draw):
    short, long = draw.whole(2, 3), draw.whole(20, 30)
    yield "with one symbol and no padding", 1, 1, False
    yield "with three symbols and no padding", 3, 3, False
    yield "with three symbols, packed, no padding", 3, 3, True
    yield "with padding and no packing", short, 5, False
    yield "with padding and packing", short, 5, True
    yield "with more padding and no packing", draw.whole(4, 5), 11, False
    yield "with a long word, packed", long, 31, True


check_state_dependencies = Exercise(
    state_dependencies,
    state_dependencies_cases,
    stars=2,
    minutes=15,
    section="Batches: padding and packing",
    title="which symbols a state depends on",
    returns=("depends",),
    mistakes={
        "directions-swapped": (
            "the directions are swapped: the forward state has read what comes before",
            "[forward, forward.mT] → [forward.mT, forward]",
        ),
        "packing-ignored": (
            "packing changes nothing; packed states do not depend on padding",
            "depends & real & real[:, None] if packed else depends → depends",
        ),
        "zeros-neutral": (
            "padding has no effect without packing; zeros still change the state",
            "else depends → else depends & real",
        ),
        "padding-states-remain": (
            "with packing, states at padding depend on symbols; they should be empty",
            " & real[:, None] → ",
        ),
        "own-symbol-missing": (
            "the symbol at a state's own position is left out; it is read as well",
            "position[:, None] >= position → position[:, None] > position",
        ),
    },
    hints=(
        "Write down one row: what have both states at position 2 read?",
        "Without packing, padding is an input like any other.",
    ),
)


def generate_freely(step: Callable, state: Tensor, start: int, count: int) -> list[int]:
    """Return the most probable symbols; each is the next step's input."""
    output, previous = [], start
    for _ in range(count):
        logits, state = step(previous, state)
        previous = int(logits.argmax())
        output.append(previous)
    return output


def predict_with_true_history(
    step: Callable, state: Tensor, start: int, target: list
) -> list[int]:
    """Return the most probable symbols; the inputs are the true ones."""
    output = []
    for previous in [start, *target[:-1]]:
        logits, state = step(previous, state)
        output.append(int(logits.argmax()))
    return output


def find_errors(output: list[int], target: list[int]) -> list[int]:
    """Return the positions at which two sequences differ."""
    pairs = zip(output, target, strict=True)
    return [t for t, (symbol, true) in enumerate(pairs) if symbol != true]


def error_cause(step: Callable, state: Tensor, start: int, target: list[int]) -> bool:
    """Return whether the wrong history explains every later mistake.

    Until its first mistake, the decoder has the true history in both runs.
    """
    generated = generate_freely(step, state, start, len(target))
    predicted = predict_with_true_history(step, state, start, target)
    first_mistake = find_errors(generated, target)[0]
    return all(t <= first_mistake for t in find_errors(predicted, target))


def make_decoder(
    target: list[int], noise: Tensor, lost: set[int], misled: str, large: float
) -> Callable[[int, Tensor], tuple[Tensor, Tensor]]:
    """Return a decoder that is wrong at the positions `lost`, whatever it has read.

    It is misled by a wrong symbol "never", "once" (at that step) or "forever". The
    logits, of `noise` (T, V) and below zero, are multiplied by `large`.
    """

    def step(previous: int, state: Tensor) -> tuple[Tensor, Tensor]:
        t = min(int(state[0]), len(target) - 1)
        strayed = bool(previous != [1, *target][t])
        strayed |= misled == "forever" and bool(state[1])
        wrong = t in lost or (strayed and misled != "never")
        symbol = 3 + (target[t] - 2 + t % 3) % 8 if wrong else target[t]
        logits = noise[t].clone()
        logits[symbol] = 5.0
        return large * (logits - 32), torch.tensor([t + 1.0, float(strayed)])

    return step


def error_cause_cases(draw):
    def case(tries, lost, misled="never", size=0, large=1.0):
        size = size or draw.whole(8, 9)
        target = draw.integers(3, 10, size).tolist()
        noise = draw.normal(size, 11).clamp(-3, 3)
        step = make_decoder(target, noise, {x % size for x in lost}, misled, large)
        return f"with a decoder {tries}", step, torch.zeros(2), 1, target

    misled, lacks = "misled by its history", "that has no information about"
    both = f"{misled}, {lacks}"
    cases = (
        case("misled by each wrong symbol", [2], "once"),
        case("misled by its state", [3], "forever"),
        case(f"{misled}, with logits far below zero", [1], "once", large=LARGE),
        case(f"{lacks} two symbols", [3, 4]),
        case(f"{lacks} the end", range(4, 8)),
        case(f"{both} a late symbol", [2, 6], "forever"),
        case(f"{both} most symbols", [1, 3, 4, 5, 6], "forever"),
        case(f"{both} the last symbol", [1, -1], "once"),
        case(f"{both} a late symbol of many", [5, 19], "forever", size=23),
    )
    yield from draw.shuffle(cases)


def predict_from_own_states(step, state, start, target):
    """Feed the true symbols to the states of the generated sequence."""
    output, previous = [], start
    for true in [start, *target[:-1]]:
        output.append(int(step(true, state)[0].argmax()))
        logits, state = step(previous, state)
        previous = int(logits.argmax())
    return output


check_error_cause = Exercise(
    error_cause,
    error_cause_cases,
    stars=3,
    minutes=25,
    section="Exposure bias",
    title="missing information or exposure bias",
    returns=("cause",),
    helpers=(generate_freely, predict_with_true_history, find_errors),
    mistakes={
        "own-history-always": (
            "every error is attributed to the decoder's own history; compare with a "
            "run in which the history is right",
            lambda *x: True,
        ),
        "missing-always": (
            "every error is attributed to missing information; the first error, which "
            "is in both runs, does not count",
            lambda *x: False,
        ),
        "fewer-errors": (
            "it returns True if the true history removes some of the errors; it should "
            "remove all later ones",
            "all(t <= first_mistake for t in find_errors(predicted, target)) → "
            "len(find_errors(predicted, target)) < len(find_errors(generated, target))",
        ),
        "own-states": (
            "the true symbols are fed with the states of the generated sequence; the "
            "state is part of the history as well",
            "predict_with_true_history → predict_from_own_states",
        ),
    },
    hints=(
        "Run the decoder twice: with its own symbols, and with the true history.",
        "Feed true symbols with the states of that run; the first error is in both.",
    ),
)
