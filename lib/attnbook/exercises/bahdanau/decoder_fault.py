"""Exercise: find out what is wrong with a decoder step, by tests.

Source: the faults are those of public decoders, linked in the chapter
Axes: B batch, S source symbols, M memory width, N state width, A alignment
    width, I width of a symbol's vector
"""

from collections.abc import Callable

import torch
from torch import Tensor

from attnbook.attention.additive import additive_scores
from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.faults import (
    NEVER_FOUND,
    FaultyModule,
    describe_fault,
    list_number_mistakes,
)
from attnbook.exercises.inputs import draw_normal

# What can be built into a step, and the number of its fault.
FAULTS = {
    "right": 0,
    "all ones": 1,
    "sigmoid": 1,
    "masked after the softmax": 1,
    "unmasked": 2,
    "padding scored 0": 2,
    "state lost": 3,
    "context lost": 4,
    "attends after the step": 5,
}


class Step(FaultyModule):
    """A decoder step with or without a fault.

    Called with state (B, N), word (B, I), memory (B, S, M) and lengths (B,), it
    returns the next state (B, N) and the weights (B, S).
    """

    def __call__(
        self, state: Tensor, word: Tensor, memory: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Attend, then step; as far as the fault allows."""
        W, U, v, enter, turn = self.numbers
        query, kind = state, self.built_in
        if kind == "attends after the step":
            nothing = torch.zeros_like(memory[:, 0])
            first = torch.cat([word, nothing], -1) @ enter.T
            query = torch.tanh(first + state @ turn.T)
        scores = additive_scores(query[:, None], memory, W, U, v)[:, 0]
        weights = self._weights(scores, lengths)
        context = (weights[:, None] @ memory)[:, 0]
        if kind == "context lost":
            context = torch.zeros_like(context)
        if kind == "state lost":
            state = torch.zeros_like(state)
        inputs = torch.cat([word, context], -1)
        return torch.tanh(inputs @ enter.T + state @ turn.T), weights

    def _weights(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """Return weights (B, S) of scores (B, S)."""
        real = torch.arange(scores.shape[1]) < lengths[:, None]
        kind = self.built_in
        if kind == "all ones":
            return real.to(scores)
        if kind == "sigmoid":
            return scores.sigmoid() * real
        if kind == "masked after the softmax":
            return scores.softmax(-1) * real
        if kind == "padding scored 0":
            return (scores * real).softmax(-1)
        if kind == "unmasked":
            return scores.softmax(-1)
        return scores.masked_fill(~real, -torch.inf).softmax(-1)


def decoder_fault(
    step: Callable,
    state: Tensor,
    word: Tensor,
    memory: Tensor,
    lengths: Tensor,
) -> int:
    """Return the number of a step's fault, 0 if there is none.

    1: weights do not sum to 1. 2: padding receives weight. 3: the recurrent
    step does not receive the previous state. 4: it does not receive the context
    vector. 5: the weights are computed from the state after the step.

    Args:
        step: (state, word, memory, lengths) to (next state, weights).
        state: an example of the state.
        word: an example of the previous symbol's vector.
        memory: an example of the encoder's states.
        lengths: all equal to S, so that there is no padding.
    """

    def equal(a: Tensor, b: Tensor) -> bool:
        return torch.allclose(a, b, atol=1e-5)

    rng = torch.Generator().manual_seed(0)
    state = torch.randn(state.shape, generator=rng)
    memory = torch.randn(memory.shape, generator=rng)
    padded = lengths - 1  # the last position is padding now
    following, weights = step(state, word, memory, padded)
    if not equal(weights.sum(-1), torch.ones(len(weights))):
        return 1
    if not equal(weights[:, -1], torch.zeros(len(weights))):
        return 2
    if not equal(step(state, word + 1, memory, padded)[1], weights):
        return 5
    if equal(step(state, word, memory + 1, padded)[0], following):
        return 4
    one = memory[:, :1], torch.ones_like(lengths)  # always the same context
    if equal(step(state, word, *one)[0], step(state + 1, word, *one)[0]):
        return 3
    return 0


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """A right step first, then every fault, in any order."""

    def case(built_in: str, zero: bool) -> Case:
        b, s, i, m, n, a = 3, 5, 2, 4, 3, 7
        numbers = (
            draw_normal(rng, a, n),
            draw_normal(rng, a, m),
            draw_normal(rng, a),
            0.3 * draw_normal(rng, n, i + m),
            0.3 * draw_normal(rng, n, n),
        )
        inputs = (
            Step(built_in, numbers),
            draw_normal(rng, b, n) * (not zero),
            draw_normal(rng, b, i),
            draw_normal(rng, b, s, m),
            torch.full((b,), s),
        )
        what = describe_fault(built_in, FAULTS)
        begins = ", given a state of zeros" if zero else ""
        return Case(f"with a step that has {what}{begins}", inputs)

    kinds = [(kind, zero) for kind in FAULTS for zero in (False, True)]
    order = 1 + torch.randperm(len(kinds) - 1, generator=rng)
    return tuple(case(*kinds[i]) for i in (0, *order.tolist()))


def change_padding(memory: Tensor) -> Tensor:
    """Return the memory with its last position changed."""
    return torch.cat([memory[:, :-1], memory[:, -1:] + 1], dim=1)


check_decoder_fault = Exercise(
    title="the fault of a decoder step",
    stars=3,
    minutes=25,
    section="Pitfalls",
    solution=decoder_fault,
    key_line="following, weights = step(state, word, memory, padded)",
    returns=("fault",),
    draw=draw,
    mistakes=(
        Mistake(
            "no-padding-tried",
            "only inputs without padding",
            "it tries only inputs without padding, so it cannot see what the "
            "step does with padding; shorten the lengths",
            ("padded = lengths - 1 → padded = lengths", "return 2 → pass"),
        ),
        Mistake(
            "state-seen-in-context",
            "state tested with several positions",
            "its test of the state has more than one source position: the old "
            "state also changes the weights, so the next state changes even if "
            "the recurrent step does not receive it",
            "memory[:, :1], torch.ones_like(lengths) → memory, padded",
        ),
        Mistake(
            "example-state",
            "state compared with zeros",
            "it compares the given state with zeros, and the given state may "
            "itself be zero; choose two states that differ",
            (
                "torch.randn(state.shape, generator=rng) → state",
                "step(state + 1, → step(0 * state,",
            ),
        ),
        Mistake(
            "padding-changed",
            "context tested by changing padding",
            "its test of the context vector changes padding only, which must "
            "not have an effect; change a real position",
            "memory + 1 → change_padding(memory)",
        ),
        Mistake(
            "order-by-state",
            "order tested on the next state",
            "its test of the order looks at the next state, which always "
            "depends on the word; look at the weights",
            "padded)[1], weights) → padded)[0], following)",
        ),
        Mistake(
            "exact-comparison",
            "sums compared exactly",
            "it compares sums of weights with 1 exactly, and rounding makes "
            "right weights sum to 0.9999999",
            "not equal(weights.sum(-1), torch.ones(len(weights))) → "
            "(weights.sum(-1) != 1).any()",
            by_rounding=True,
        ),
        Mistake(
            "small-sums-only",
            "only sums above 1 refused",
            "it detects sums of weights above 1, not below",
            "not equal(weights.sum(-1), torch.ones(len(weights))) → "
            "(weights.sum(-1) > 1.001).any()",
        ),
        Mistake(
            "mean-of-sums",
            "only the fault of the weights",
            "it tests only whether the weights sum to 1",
            lambda *given: int(decoder_fault(*given) == 1),
        ),
        *list_number_mistakes(decoder_fault),
        NEVER_FOUND,
    ),
)
