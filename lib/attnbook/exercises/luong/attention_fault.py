"""Exercise: find out what is wrong with an attention layer, by tests.

Source: the faults are those of public decoders, linked in the chapter
Axes: B batch, T queries, S source symbols, M width of states and memory
"""

from collections.abc import Callable

import torch
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.faults import (
    NEVER_FOUND,
    FaultyModule,
    describe_fault,
    differ,
    list_number_mistakes,
)
from attnbook.exercises.inputs import draw_normal

# What can be built into a layer, and the number of its fault.
FAULTS = {
    "right": 0,
    "dot": 0,
    "softmax over the queries": 1,
    "mean of the queries subtracted": 1,
    "unmasked": 2,
    "padding scored 0": 2,
    "location": 3,
    "equal weights": 3,
    "reshaped": 4,
    "first columns": 5,
    "last columns": 5,
}


class Layer(FaultyModule):
    """Attention after the recurrent step, with or without a fault.

    Called with states (B, T, M), memory (B, S, M) and lengths (B,), it returns
    attentional vectors (B, T, M) and weights (B, T, S).
    """

    def __call__(
        self, states: Tensor, memory: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Attend and combine, as far as the fault allows."""
        mix = self.numbers[2]
        weights = self._weights(self._scores(states, memory), lengths)
        both = torch.cat([weights @ memory, states], dim=-1)
        return torch.tanh(both @ mix.T), weights

    def _scores(self, states: Tensor, memory: Tensor) -> Tensor:
        """Return scores (B, T, S)."""
        W, places, _ = self.numbers
        kind, half = self.built_in, memory.shape[2] // 2
        if kind == "location":
            return states @ places[: memory.shape[1]].T
        keys = memory if kind == "dot" else memory @ W.T
        if kind == "first columns":
            keys = memory[..., :half] @ W[:, :half].T
        if kind == "last columns":
            keys = memory[..., half:] @ W[:, half:].T
        if kind == "reshaped":
            return states @ keys.reshape(keys.shape[0], keys.shape[2], -1)
        scores = states @ keys.mT
        if kind == "equal weights":
            scores = 0 * scores
        if kind == "mean of the queries subtracted":
            scores = scores - scores.mean(1, keepdim=True)
        return scores

    def _weights(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """Return weights (B, T, S) of scores (B, T, S)."""
        real = (torch.arange(scores.shape[2]) < lengths[:, None])[:, None]
        kind = self.built_in
        if kind == "softmax over the queries":
            return scores.softmax(1) * real
        if kind == "padding scored 0":
            return (scores * real).softmax(-1)
        if kind == "unmasked":
            return scores.softmax(-1)
        return scores.masked_fill(~real, -torch.inf).softmax(-1)


def attention_fault(
    layer: Callable, states: Tensor, memory: Tensor, lengths: Tensor
) -> int:
    """Return the number of a layer's fault, 0 if there is none.

    1: the weights of a query depend on the other queries. 2: padding gets
    weight. 3: the weights do not depend on the memory. 4: the keys are
    reshaped instead of transposed. 5: only half of the columns of the memory
    influence the weights.

    Args:
        layer: (states, memory, lengths) to (attentional vectors, weights).
        states: an example of the decoder's states.
        memory: an example of the encoder's states.
        lengths: all equal to S, so that there is no padding.
    """
    rng = torch.Generator().manual_seed(0)
    batch, _, width = states.shape
    states, memory = (
        draw_normal(rng, batch, 3, width),
        draw_normal(rng, *memory.shape),
    )
    other = draw_normal(rng, *memory.shape)
    weights = layer(states, memory, lengths)[1]
    if differ(layer(states[:, :1], memory, lengths)[1], weights[:, :1]):
        return 1
    if layer(states, memory, lengths - 1)[1][..., -1].any():
        return 2
    if not differ(layer(states, other, lengths)[1], weights):
        return 3
    if differ(layer(states, memory.flip(1), lengths)[1].flip(-1), weights):
        return 4
    half = width // 2
    for first, last in (memory, other), (other, memory):
        mixed = torch.cat([first[..., :half], last[..., half:]], dim=-1)
        if not differ(layer(states, mixed, lengths)[1], weights):
            return 5
    return 0


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """A right layer first, then every fault, in any order."""

    def case(built_in: str, plain: bool) -> Case:
        b, t, s, m = 3, 1 if plain else 3, 5, 4
        numbers = (
            draw_normal(rng, m, m),
            draw_normal(rng, 12, m),
            0.5 * draw_normal(rng, m, 2 * m),
        )
        memory = draw_normal(rng, b, s, m)
        if plain:
            memory = memory[:, :1].expand(-1, s, -1).clone()
        inputs = (
            Layer(built_in, numbers),
            draw_normal(rng, b, t, m),
            memory,
            torch.full((b,), s),
        )
        what = describe_fault(built_in, FAULTS)
        given = ", given one query and equal encoder states" if plain else ""
        return Case(f"with a layer that has {what}{given}", inputs)

    kinds = [(kind, plain) for kind in FAULTS for plain in (False, True)]
    order = 1 + torch.randperm(len(kinds) - 1, generator=rng)
    return tuple(case(*kinds[i]) for i in (0, *order.tolist()))


def check_only_sums(layer, states, memory, lengths) -> int:
    """Test nothing but the sums of the weights."""
    total = layer(states, memory, lengths)[1].sum(-1)
    return int(differ(total, torch.ones_like(total)))


check_attention_fault = Exercise(
    title="the fault of an attention layer",
    stars=3,
    minutes=25,
    section="Pitfalls",
    solution=attention_fault,
    key_line="if differ(layer(states, memory.flip(1), lengths)[1].flip(-1), weights):",
    returns=("fault",),
    draw=draw,
    mistakes=(
        Mistake(
            "one-query",
            "only one query",
            "it tries one query at a time, and one query cannot depend on "
            "others; give the layer several",
            "batch, 3, width → batch, 1, width",
        ),
        Mistake(
            "example-memory",
            "given encoder states not replaced",
            "it tests with the given encoder states, which may all be equal; "
            "then another order changes nothing",
            "states, memory = → states, _ =",
        ),
        Mistake(
            "no-padding-tried",
            "only inputs without padding",
            "it tries only inputs without padding; shorten the lengths",
            "return 2 → pass",
        ),
        Mistake(
            "compares-vectors",
            "attentional vectors instead of weights",
            "it looks at the attentional vectors, which contain the values: "
            "they change with the memory even if the weights do not",
            (
                "weights = layer(states, memory, lengths)[1] → "
                "vectors, weights = layer(states, memory, lengths)",
                "other, lengths)[1], weights → other, lengths)[0], vectors",
                "mixed, lengths)[1], weights → mixed, lengths)[0], vectors",
            ),
        ),
        Mistake(
            "weights-not-moved",
            "moved encoder states, unmoved weights",
            "if the encoder states are moved, the weights must move with them; "
            "it expects that they stay",
            "[1].flip(-1) → [1]",
        ),
        Mistake(
            "first-columns-only",
            "only the last columns changed",
            "it changes only the last half of the columns, so it cannot see "
            "that the first half has no influence",
            "(memory, other), (other, memory) → [(memory, other)]",
        ),
        Mistake(
            "last-columns-only",
            "only the first columns changed",
            "it changes only the first half of the columns, so it cannot see "
            "that the last half has no influence",
            "(memory, other), (other, memory) → [(other, memory)]",
        ),
        Mistake(
            "only-sums",
            "only sums of weights",
            "it tests only whether the weights sum to 1, and most wrong "
            "layers pass this test",
            check_only_sums,
        ),
        *list_number_mistakes(attention_fault),
        NEVER_FOUND,
    ),
)
