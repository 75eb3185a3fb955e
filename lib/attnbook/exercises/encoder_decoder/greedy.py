"""Exercise: greedy decoding, each output fed back in.

Source: Sutskever, Vinyals and Le (2014), section 3.2 (a beam of one),
    https://arxiv.org/abs/1409.3215
Axes: V symbols, N state width
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.exercises.edit import edit_solution
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal


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


PATIENCE = 400  # calls; no case asks for as many


@dataclass(eq=False)
class Step:
    """A tiny decoder: the next state from word and state, logits from it."""

    word: Tensor
    turn: Tensor
    speak: Tensor
    calls: int = 0

    def __call__(self, previous: int, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits (V,) of the next symbol and the next state (N,)."""
        self.calls += 1
        if self.calls > PATIENCE:
            raise RuntimeError(f"`step` was called {PATIENCE} times")
        state = torch.tanh(self.word[previous] + self.turn @ state)
        return self.speak @ state, state

    def __eq__(self, other) -> bool:
        """Two steps are equal if their numbers are: it was not changed."""
        names = ("word", "turn", "speak")
        return all(torch.equal(getattr(self, x), getattr(other, x)) for x in names)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Search for decoders that end early, at the limit, or not at all."""
    ends, runs = [], []
    while len(ends) < 2 or len(runs) < 2:
        step = Step(
            draw_normal(rng, 7, 5),
            2 * draw_normal(rng, 5, 5),
            draw_normal(rng, 7, 5),
        )
        state = draw_normal(rng, 5)
        output = greedy(step, state, 1, 2, 9)
        if len(set(output)) >= 3 and depends_on_state(step, state, output):
            (ends if len(output) < 9 else runs).append(((step, state), output))
    (first, output), (second, _) = ends[:2]
    (long, words), (longer, _) = runs[:2]
    end = next(word for word in reversed(words) if word != 1)
    return (
        Case("with a limit of one symbol", (*long, 1, 2, 1)),
        Case("with a decoder that predicts `end`", (*first, 1, 2, 9)),
        Case("with another one that predicts `end`", (*second, 1, 2, 20)),
        Case("with a limit met exactly", (*first, 1, 2, len(output))),
        Case("with one that does not predict `end`", (*long, 1, 2, 9)),
        Case("with a limit of 6", (*longer, 1, 2, 6)),
        Case("with another number for the end", (*long, 1, end, 9)),
        Case("with another number for the start", (*longer, 3, 2, 9)),
        # There is no symbol 7: no decoder of this exercise ends with it.
        Case("with 150 symbols", (*long, 1, 7, 150)),
    )


def depends_on_state(step: Step, state: Tensor, output: list[int]) -> bool:
    """Tell whether the mistakes change the output of this decoder."""
    others = (m.answer(step, state, 1, 2, 9) for m in FED_WRONGLY)
    return all(other[:6] != output[:6] for other in others)


FED_WRONGLY = (
    Mistake(
        "always-start",
        "start symbol at every step",
        "every step receives the start symbol; it should receive the symbol "
        "predicted last",
        edit_solution(greedy, "step(previous, state) → step(start, state)"),
    ),
    Mistake(
        "state-lost",
        "state not carried over",
        "the state that a step returns is discarded, so every step begins "
        "from the initial state",
        edit_solution(greedy, "logits, state = → logits, _ ="),
    ),
    Mistake(
        "state-reset",
        "state reset to zeros",
        "every step begins from a state of zeros",
        edit_solution(
            greedy,
            "output.append(previous) → output.append(previous); state = 0 * state",
        ),
    ),
    Mistake(
        "least-likely",
        "least likely symbol",
        "it chooses the least likely symbol",
        edit_solution(greedy, "argmax → argmin"),
    ),
    Mistake(
        "second-fed-back",
        "wrong symbol fed back",
        "the symbol fed back to the decoder is not the one that was predicted",
        edit_solution(
            greedy,
            "output.append(previous) "
            "→ output.append(previous); previous = int(logits.topk(2)[1][1])",
        ),
    ),
)


def ignore_end(step, state, start, end, limit):
    """Decode up to the limit and ignore the end symbol."""
    return greedy(step, state, start, -1, limit)


def ignore_limit(step, state, start, end, limit):
    """Run until the end, if there is one."""
    return greedy(step, state, start, end, 2 * PATIENCE)


def keep_end(step, state, start, end, limit):
    """Keep the end symbol in the answer."""
    output = greedy(step, state, start, end, limit)
    return output if len(output) == limit else [*output, end]


check_greedy = Exercise(
    title="greedy decoding",
    stars=2,
    minutes=20,
    section="Generation: greedy search",
    solution=greedy,
    returns=("symbols",),
    draw=draw,
    mistakes=(
        *FED_WRONGLY,
        Mistake(
            "never-ends",
            "no stop at the end symbol",
            "decoding does not stop at `end`",
            ignore_end,
        ),
        Mistake(
            "no-limit",
            "no length limit",
            "decoding does not stop at `limit`",
            ignore_limit,
        ),
        Mistake(
            "end-included",
            "end symbol included",
            "`end` is included in the output",
            keep_end,
        ),
        Mistake(
            "start-included",
            "start symbol included",
            "`start` is included in the output",
            lambda step, state, start, *x: [
                start,
                *greedy(step, state, start, *x),
            ],
        ),
        Mistake(
            "one-too-many",
            "one symbol too many",
            "it generates one symbol more than `limit`",
            lambda *x: greedy(*x[:-1], x[-1] + 1),
        ),
        Mistake(
            "one-too-few",
            "one symbol too few",
            "it generates one symbol fewer than `limit`",
            lambda *x: greedy(*x[:-1], x[-1] - 1),
        ),
        Mistake(
            "end-is-two",
            "end symbol hard-coded",
            "the end symbol is assumed to be 2, whatever `end` is",
            lambda step, state, start, end, limit: greedy(step, state, start, 2, limit),
        ),
        Mistake(
            "one-symbol",
            "one symbol only",
            "it generates one symbol and stops",
            lambda *x: greedy(*x[:-1], 1),
        ),
    ),
)
