"""Exercise: a control that separates exposure bias from missing information.

Source: exposure bias is the term of Ranzato et al. (2016), section 1,
    https://arxiv.org/abs/1511.06732
Axes: V symbols, T target symbols
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, draw_normal, shuffle_cases

SYMBOLS, START = 11, 1
PATIENCE = 200  # calls; no answer needs as many


@dataclass(eq=False)
class SmallDecoder:
    """A decoder that errs where it is told to.

    Attributes:
        target: the correct symbols.
        noise: (T, V) added to the logits.
        lost: positions at which it is wrong whatever it has read.
        misled: whether a wrong previous symbol makes it wrong: "never", "once"
            (at that step) or "forever" (from then on).
    """

    target: list[int]
    noise: Tensor
    lost: frozenset[int]
    misled: str
    calls: int = 0

    def __call__(self, previous: int, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits (V,) of the next symbol and the next state (2,)."""
        self.calls += 1
        if self.calls > PATIENCE:
            raise RuntimeError(f"`step` was called {PATIENCE} times")
        t, before = int(state[0]), bool(state[1])
        true = [START, *self.target]
        deviated = previous != true[min(t, len(true) - 1)]
        if self.misled == "forever":
            deviated = deviated or before
        t_here = min(t, len(self.target) - 1)
        symbol = self.target[t_here]
        if t_here in self.lost or (deviated and self.misled != "never"):
            symbol = 3 + (symbol - 3 + 1 + t_here % 3) % (SYMBOLS - 3)
        logits = self.noise[t_here].clone()
        logits[symbol] = 5.0
        return logits, torch.tensor([t + 1.0, float(deviated)])

    def __eq__(self, other) -> bool:
        """Two decoders are equal if they err alike."""
        return (
            self.target == other.target
            and self.lost == other.lost
            and self.misled == other.misled
            and torch.equal(self.noise, other.noise)
        )


def generate_freely(
    step: Callable[[int, Tensor], tuple[Tensor, Tensor]],
    state: Tensor,
    start: int,
    count: int,
) -> list[int]:
    """Return the most probable symbols; each is the next step's input."""
    output, previous = [], start
    for _ in range(count):
        logits, state = step(previous, state)
        previous = int(logits.argmax())
        output.append(previous)
    return output


def predict_with_true_history(
    step: Callable[[int, Tensor], tuple[Tensor, Tensor]],
    state: Tensor,
    start: int,
    target: list,
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


def error_cause(
    step: Callable[[int, Tensor], tuple[Tensor, Tensor]],
    state: Tensor,
    start: int,
    target: list[int],
) -> bool:
    """Return whether the wrong history explains every later mistake.

    Until its first mistake, the decoder has the true history in both runs.
    """
    generated = generate_freely(step, state, start, len(target))
    predicted = predict_with_true_history(step, state, start, target)
    first_mistake = find_errors(generated, target)[0]
    return all(t <= first_mistake for t in find_errors(predicted, target))


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Decoders with one cause of errors, and with both."""
    size = int(draw_integers(rng, 8, 9))

    def case(tries, lost, misled):
        target = draw_integers(rng, 3, SYMBOLS - 1, size).tolist()
        noise = draw_normal(rng, size, SYMBOLS).clamp(-3, 3)
        step = SmallDecoder(target, noise, frozenset(lost), misled)
        return Case(tries, (step, torch.zeros(2), START, target))

    def lacking(symbols, lost, misled="never"):
        both = "is misled by its history and " if misled != "never" else ""
        tries = f"with a decoder that {both}has no information about {symbols}"
        return case(tries, lost, misled)

    cases = (
        case("with a decoder misled by each wrong symbol", (2,), "once"),
        case("with a decoder misled by its state", (3,), "forever"),
        case("with a decoder misled from the first symbol on", (0,), "forever"),
        lacking("the second half", range(4, size)),
        lacking("the middle", (2, 3, 4)),
        lacking("two symbols", (3, 4)),
        lacking("all symbols after the third", range(3, size), "forever"),
        lacking("a late symbol", (2, 6), "forever"),
        lacking("part of the middle", (2, 3, 5), "forever"),
        lacking("most symbols", (1, 3, 4, 5, 6), "forever"),
        lacking("the last symbol", (1, size - 1), "once"),
    )
    return shuffle_cases(cases, rng)


def make_answer(compare):
    """Return an answer that decides from the errors of both runs.

    Args:
        compare: from errors with own and with true history to a verdict.
    """

    def answer(step, state, start, target):
        own = generate_freely(step, state, start, len(target))
        forced = predict_with_true_history(step, state, start, target)
        return compare(find_errors(own, target), find_errors(forced, target))

    return answer


def use_own_states(step, state, start, target):
    """Feed the true symbols to the states of the generated sequence."""
    made, forced, previous = [], [], start
    for true in [start, *target[:-1]]:
        forced.append(int(step(true, state)[0].argmax()))
        logits, state = step(previous, state)
        previous = int(logits.argmax())
        made.append(previous)
    own, wrong = find_errors(made, target), find_errors(forced, target)
    return not any(t > own[0] for t in wrong)


check_error_cause = Exercise(
    title="missing information or exposure bias",
    stars=3,
    minutes=25,
    section="Exposure bias",
    solution=error_cause,
    key_line="for previous in [start, *target[:-1]]:",
    helpers=(generate_freely, predict_with_true_history, find_errors),
    returns=("cause",),
    draw=draw,
    mistakes=(
        Mistake(
            "own-history-always",
            "no control, history blamed",
            "every error is attributed to the decoder's own history; compare "
            "with a run in which the history is right",
            make_answer(lambda own, forced: True),
        ),
        Mistake(
            "missing-always",
            "no control, information blamed",
            "every error is attributed to missing information; compare with a "
            "run in which the history is right, and leave out the first error, "
            "which is in both runs",
            make_answer(lambda own, forced: False),
        ),
        Mistake(
            "causes-swapped",
            "causes swapped",
            "True and False are swapped",
            make_answer(lambda own, forced: any(t > own[0] for t in forced)),
        ),
        Mistake(
            "next-symbol-only",
            "only the next symbol compared",
            "only the symbol after the first error is compared; information "
            "may be missing later",
            make_answer(lambda own, forced: own[0] + 1 not in forced),
        ),
        Mistake(
            "last-symbol-only",
            "only the last error compared",
            "only the last error of the generated sequence is compared; "
            "information may be missing earlier",
            make_answer(lambda own, forced: own[-1] not in forced or own[-1] == own[0]),
        ),
        Mistake(
            "fewer-errors",
            "fewer errors taken for none",
            "it returns True if the true history removes some of the errors; "
            "those that remain show that information is missing as well",
            make_answer(lambda own, forced: len(forced) < len(own)),
        ),
        Mistake(
            "half-explained",
            "half of the errors explained",
            "it returns True if the true history removes half of the later "
            "errors; the others show that information is missing as well",
            make_answer(lambda own, forced: 2 * (len(forced) - 1) <= len(own) - 1),
        ),
        Mistake(
            "own-states",
            "true symbols with the states of the own run",
            "the true symbols are fed, but together with the states of the "
            "generated sequence; the state is part of the history as well",
            use_own_states,
        ),
    ),
)
