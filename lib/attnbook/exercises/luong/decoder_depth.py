"""Exercise: predict how many computations of a decoder wait for one another.

Source: Luong et al. (2015), sections 3 and 3.3,
    https://arxiv.org/abs/1508.04025; Bahdanau et al. (2015), section 3.1,
    https://arxiv.org/abs/1409.0473
Axes: T output steps, L recurrent layers
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_integers, shuffle_cases

KINDS = ("before", "after", "feeding")


def decoder_depth(kind: str, T: int, L: int) -> int:
    """Return how many arrows the longest path through a decoder has.

    Args:
        kind: "before" or "after", where the decoder attends; "feeding" for
            "after" with input feeding.
        T: output steps.
        L: recurrent layers, one above the other.
    """
    if kind == "before":  # each step: c_t, then all layers; at the end o_T
        return T * (L + 1) + 1
    if kind == "after":  # along one layer, up all others, then c_T and o_T
        return T + L + 1
    return T * (L + 2)  # each step: all layers, c_t, o_t


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One step of one layer; then more of each, in any order."""
    sizes = [(1, 1), (1, 3), (4, 1), (3, 2), (2, 5)]
    sizes.append(tuple(draw_integers(rng, 6, 40, 2).tolist()))
    cases = [
        Case(
            f"with {T} step{'s' * (T > 1)} and {L} layer{'s' * (L > 1)}",
            (kind, T, L),
        )
        for T, L in sizes
        for kind in KINDS
    ]
    return shuffle_cases(tuple(cases), rng)


def change_counts(**parts):
    """Return depths that are right but for some kinds, given as functions."""

    def answer(kind, T, L):
        return parts.get(kind, lambda T, L: decoder_depth(kind, T, L))(T, L)

    return answer


check_decoder_depth = Exercise(
    title="the longest path through a decoder",
    stars=2,
    minutes=15,
    section="Attention after the recurrent step",
    solution=decoder_depth,
    returns=("arrows",),
    draw=draw,
    mistakes=(
        Mistake(
            "one-layer",
            "layers not counted",
            "the number of layers is not used; a path also leads up through the layers",
            lambda kind, T, L: decoder_depth(kind, T, 1),
        ),
        Mistake(
            "layers-wait",
            "all layers of a step before the next step",
            "layer 1 is said to wait for all layers of the step before; with "
            "attention after the step, it waits for layer 1 only",
            change_counts(after=lambda T, L: T * L + 2),
        ),
        Mistake(
            "nodes",
            "boxes instead of arrows",
            "boxes are counted instead of arrows; a path has one arrow fewer",
            lambda *x: decoder_depth(*x) + 1,
        ),
        Mistake(
            "no-output",
            "no arrow to the output",
            "the last arrow, to the vector from which the word is predicted, "
            "is missing",
            lambda *x: decoder_depth(*x) - 1,
        ),
        Mistake(
            "order-swapped",
            "before and after swapped",
            "the two orders are swapped: with attention before the step, every "
            "state waits for a context vector",
            change_counts(
                before=lambda T, L: T + L + 1,
                after=lambda T, L: T * (L + 1) + 1,
            ),
        ),
        Mistake(
            "feeding-parallel",
            "input feeding without waiting",
            "input feeding is ignored; with it, each step waits for the "
            "attentional vector of the step before",
            change_counts(feeding=lambda T, L: T + L + 1),
        ),
        Mistake(
            "feeding-as-before",
            "input feeding like attention before the step",
            "input feeding is counted like attention before the step; but "
            "each step waits for the attentional vector, which is one arrow "
            "further than the context vector",
            change_counts(feeding=lambda T, L: T * (L + 1) + 1),
        ),
        Mistake(
            "as-in-generation",
            "generation instead of teacher forcing",
            "every step is assumed to wait for the output before it, as in "
            "generation; with teacher forcing, the words are known",
            change_counts(after=lambda T, L: T * (L + 2)),
        ),
        Mistake(
            "attention-in-each-layer",
            "attention in every layer",
            "attention is counted in every layer; only the top layer attends",
            lambda kind, T, L: {
                "before": 2 * T * L + 1,
                "after": T + 2 * L,
                "feeding": 3 * T * L,
            }[kind],
        ),
        Mistake(
            "first-step-free",
            "first step not counted",
            "the first step is not counted; the path begins with its arrows",
            lambda kind, T, L: decoder_depth(kind, max(T - 1, 0), L),
        ),
    ),
)
