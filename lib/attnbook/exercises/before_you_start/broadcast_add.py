"""Exercise: every row of one with every row of another, without a loop.

Chapter: chapters/00_before_you_start
Source: PyTorch's notes on broadcasting
Axes: B batch, T queries, S keys, A alignment width
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, normal
from attnbook.solutions.before_you_start import broadcast_add


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One pair; then every axis of another size; then all the same."""

    def inputs(b, t, s, a):
        return normal(rng, b, t, a), normal(rng, b, s, a)

    usual = inputs(2, 3, 5, 7)
    return (
        Case("with one row each", inputs(1, 1, 1, 3)),
        Case("with 3 rows and 5 rows", usual, gradient=True),
        Case("with as many rows of both", inputs(2, 4, 4, 3)),
        Case("with B = T = S = A", inputs(3, 3, 3, 3)),
        Case("in double precision", doubled(usual)),
    )


check_broadcast_add = Exercise(
    title="every sum of two rows",
    stars=1,
    minutes=5,
    section="Broadcasting",
    solution=broadcast_add,
    returns=("sums",),
    draw=draw,
    mistakes=(
        Mistake(
            "no-new-axis",
            "no axis was added: each row meets the one in its own place, not "
            "all of them",
            lambda a, b: a + b,
        ),
        Mistake(
            "swapped-axes",
            "the new axes have changed places: the result is (B, S, T, A)",
            lambda a, b: a[:, None] + b[:, :, None],
        ),
        Mistake(
            "same-axis",
            "both got their new axis in the same place",
            lambda a, b: a[:, :, None] + b[:, :, None],
        ),
        Mistake(
            "batch-crossed",
            "sequences of different places in the batch meet",
            lambda a, b: a[:, :, None] + b.flip(0)[:, None],
        ),
        Mistake(
            "first-sequence",
            "all rows meet the rows of the first sequence",
            lambda a, b: a[:, :, None] + b[0],
        ),
        Mistake(
            "repeated-in-wrong-order",
            "the rows are repeated in the wrong order: `repeat` gives 0 1 2 "
            "0 1 2, `repeat_interleave` 0 0 1 1 2 2",
            lambda a, b: (
                a.repeat(1, b.shape[1], 1).view(
                    len(a), a.shape[1], b.shape[1], -1
                )
                + b[:, None]
            ),
        ),
        Mistake(
            "product",
            "the rows are multiplied, not added",
            lambda a, b: a[:, :, None] * b[:, None],
        ),
        Mistake(
            "difference",
            "the rows are subtracted, not added",
            lambda a, b: a[:, :, None] - b[:, None],
        ),
        Mistake(
            "summed-away",
            "the last axis is summed away",
            lambda a, b: (a[:, :, None] + b[:, None]).sum(-1),
        ),
        Mistake(
            "only-a",
            "the second rows are not added",
            lambda a, b: a[:, :, None].expand(-1, -1, b.shape[1], -1),
        ),
        Mistake(
            "concatenated",
            "the rows are put side by side, not added",
            lambda a, b: torch.cat(
                [
                    a[:, :, None].expand(-1, -1, b.shape[1], -1),
                    b[:, None].expand(-1, a.shape[1], -1, -1),
                ],
                -1,
            ),
        ),
    ),
)
