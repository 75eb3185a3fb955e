"""Exercise: a softmax that does not overflow.

Chapter: chapters/00_before_you_start
Source: Goodfellow, Bengio and Courville (2016), section 4.1,
    https://www.deeplearningbook.org/contents/numerical.html
Axes: T rows, S entries of a row
"""

import math

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, halved, normal
from attnbook.solutions.before_you_start import softmax


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """A row; a table, wide and square; large numbers; rows far apart."""
    x = normal(rng, 3, 5)
    far = torch.tensor([[-1000.0], [0.0], [1000.0]])
    return (
        Case("on a row of two", (normal(rng, 1, 2),)),
        Case("on 3 rows of 5", (x,), gradient=True),
        Case("on a square table", (normal(rng, 4, 4),)),
        Case("on large numbers", (x * 100 + 1000,)),
        Case("on rows far apart", (x + far,)),
        Case("in double precision", doubled((x,))),
        Case("in half precision", halved((x,))),
    )


def shares(powers, axis=-1):
    """Return numbers divided by their sum along an axis."""
    return powers / powers.sum(axis, keepdim=True)


check_softmax = Exercise(
    title="softmax along the last axis",
    stars=1,
    minutes=5,
    section="Softmax",
    solution=softmax,
    returns=("weights",),
    draw=draw,
    allowed="Everything is allowed but a ready-made softmax.",
    forbidden=frozenset({"softmax", "log_softmax", "softmin"}),
    mistakes=(
        Mistake(
            "unstable",
            "the powers overflow: subtract the largest number of the row first",
            lambda x: shares(x.exp()),
        ),
        Mistake(
            "wrong-axis",
            "it runs over the rows, not along each row",
            lambda x: softmax(x.T).T,
        ),
        Mistake(
            "whole-table",
            "it runs over the whole table; each row has a softmax of its own",
            lambda x: softmax(x.view(1, -1)).view_as(x),
        ),
        Mistake(
            "global-max",
            "the largest number of the whole table is subtracted, and rows "
            "far below it vanish; each row has a largest number of its own",
            lambda x: shares((x - x.max()).exp()),
        ),
        Mistake(
            "column-max",
            "the largest number of each column is subtracted, which changes "
            "the answer; subtract one number from a whole row",
            lambda x: shares((x - x.amax(0)).exp()),
        ),
        Mistake(
            "no-exp",
            "the numbers are divided by their sum, without the exponential",
            shares,
        ),
        Mistake(
            "sigmoid",
            "each number goes through a sigmoid by itself",
            torch.sigmoid,
        ),
        Mistake(
            "not-divided",
            "the powers are not divided by their sum",
            lambda x: (x - x.amax(-1, keepdim=True)).exp(),
        ),
        Mistake(
            "no-keepdim",
            "the sums of the rows are laid along the columns: `keepdim` is "
            "missing",
            lambda x: (
                (x - x.amax(-1, keepdim=True)).exp()
                / (x - x.amax(-1, keepdim=True)).exp().sum(-1)
            ),
        ),
        Mistake(
            "log",
            "it is the logarithm of the softmax, not the softmax",
            lambda x: softmax(x).log(),
        ),
        Mistake(
            "reversed",
            "the sign is turned: small numbers get the large shares",
            lambda x: softmax(-x),
        ),
        Mistake(
            "base-two",
            "the powers are of 2, not of e",
            lambda x: softmax(x * math.log(2)),
        ),
        Mistake(
            "hard-choice",
            "the largest number gets everything; every number should get a "
            "share",
            lambda x: (x == x.amax(-1, keepdim=True)).to(x.dtype),
        ),
    ),
)
