"""Exercise: every row of one with every row of another, without a loop.

Source: PyTorch's notes on broadcasting
Axes: B batch, T queries, S keys, A alignment width
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double


def broadcast_add(
    a: Float[Tensor, "B T A"], b: Float[Tensor, "B S A"]
) -> Float[Tensor, "B T S A"]:
    """Return the sum of every row of a with every row of b."""
    return a[:, :, None] + b[:, None]


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """One pair; then every axis of another size; then all the same."""

    def inputs(b, t, s, a):
        return draw_normal(rng, b, t, a), draw_normal(rng, b, s, a)

    usual = inputs(2, 3, 5, 7)
    return (
        Case("with one row each", inputs(1, 1, 1, 3)),
        Case("with 3 rows and 5 rows", usual, gradient=True),
        Case("with as many rows of both", inputs(2, 4, 4, 3)),
        Case("with B = T = S = A", inputs(3, 3, 3, 3)),
        Case("in double precision", to_double(usual), asked=False),
    )


check_broadcast_add = Exercise(
    title="broadcast sum of two tensors",
    stars=1,
    minutes=5,
    section="Broadcasting",
    solution=broadcast_add,
    returns=("sums",),
    draw=draw,
    mistakes=(
        Mistake(
            "no-new-axis",
            "no new axis",
            "no axis is inserted, so each row of `a` is added only to the row "
            "of `b` with the same index",
            lambda a, b: a + b,
        ),
        Mistake(
            "swapped-axes",
            "new axes swapped",
            "the new axes are swapped; the shape should be (B, T, S, A)",
            lambda a, b: a[:, None] + b[:, :, None],
        ),
        Mistake(
            "same-axis",
            "same new axis twice",
            "both tensors get their new axis in the same position",
            lambda a, b: a[:, :, None] + b[:, :, None],
        ),
        Mistake(
            "batch-crossed",
            "sequences of the batch mixed",
            "rows are added to rows of another sequence of the batch",
            lambda a, b: a[:, :, None] + b.flip(0)[:, None],
        ),
        Mistake(
            "first-sequence",
            "first sequence only",
            "all rows are added to the rows of the first sequence",
            lambda a, b: a[:, :, None] + b[0],
        ),
        Mistake(
            "repeated-in-wrong-order",
            "repeated in the wrong order",
            "the rows are repeated in the wrong order: `repeat` gives 0 1 2 0 "
            "1 2, `repeat_interleave` gives 0 0 1 1 2 2",
            lambda a, b: (
                a.repeat(1, b.shape[1], 1).view(len(a), a.shape[1], b.shape[1], -1)
                + b[:, None]
            ),
        ),
        Mistake(
            "product",
            "product instead of a sum",
            "the rows are multiplied; they should be added",
            lambda a, b: a[:, :, None] * b[:, None],
        ),
        Mistake(
            "difference",
            "difference instead of a sum",
            "the rows are subtracted; they should be added",
            lambda a, b: a[:, :, None] - b[:, None],
        ),
        Mistake(
            "summed-away",
            "last axis summed",
            "the last axis is summed away; it should be kept",
            lambda a, b: (a[:, :, None] + b[:, None]).sum(-1),
        ),
        Mistake(
            "only-a",
            "one summand missing",
            "the rows of the second tensor are not added",
            lambda a, b: a[:, :, None].expand(-1, -1, b.shape[1], -1),
        ),
        Mistake(
            "concatenated",
            "concatenated instead of added",
            "the rows are concatenated; they should be added",
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
