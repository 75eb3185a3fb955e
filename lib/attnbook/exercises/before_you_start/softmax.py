"""Exercise: a softmax that does not overflow.

Source: Goodfellow, Bengio and Courville (2016), section 4.1,
    https://www.deeplearningbook.org/contents/numerical.html
Axes: T rows, S entries of a row
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double, to_half


def softmax(x: Float[Tensor, "T S"]) -> Float[Tensor, "T S"]:
    """Return each row as positive numbers that sum to 1."""
    powers = (x - x.amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """A row; a table, wide and square; large numbers; rows far apart."""
    x = draw_normal(rng, 3, 5)
    far = torch.tensor([[-1000.0], [0.0], [1000.0]])
    return (
        Case("on a row of two", (draw_normal(rng, 1, 2),)),
        Case("on 3 rows of 5", (x,), gradient=True),
        Case("on a square matrix", (draw_normal(rng, 4, 4),)),
        Case("on large numbers", (x * 100 + 1000,)),
        Case("on rows far apart", (x + far,)),
        Case("in double precision", to_double((x,)), asked=False),
        Case("in half precision", to_half((x,)), asked=False),
    )


def divide_by_sum(powers, axis=-1):
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
    other_solutions=(lambda x: (x - x.logsumexp(-1, keepdim=True)).exp(),),
    allowed="Everything is allowed but a ready-made softmax.",
    forbidden=frozenset({"softmax", "log_softmax", "softmin"}),
    mistakes=(
        Mistake(
            "unstable",
            "exponential overflows",
            "the exponentials overflow; subtract the largest number of each row first",
            lambda x: divide_by_sum(x.exp()),
        ),
        Mistake(
            "wrong-axis",
            "softmax over the wrong axis",
            "the softmax runs along each column; it should run along each row",
            lambda x: softmax(x.T).T,
        ),
        Mistake(
            "whole-table",
            "one softmax for all rows",
            "the softmax runs over the whole matrix; each row should have its own",
            lambda x: softmax(x.view(1, -1)).view_as(x),
        ),
        Mistake(
            "global-max",
            "maximum of the whole matrix",
            "the maximum of the whole matrix is subtracted, so rows far below "
            "it underflow to 0; subtract the maximum of each row",
            lambda x: divide_by_sum((x - x.max()).exp()),
        ),
        Mistake(
            "column-max",
            "maximum of each column",
            "the maximum of each column is subtracted, which changes the "
            "result; the same number must be subtracted from a whole row",
            lambda x: divide_by_sum((x - x.amax(0)).exp()),
        ),
        Mistake(
            "no-exp",
            "no exponential",
            "the numbers are divided by their sum without taking the exponential first",
            divide_by_sum,
        ),
        Mistake(
            "sigmoid",
            "sigmoid instead of softmax",
            "a sigmoid is applied to each number separately",
            torch.sigmoid,
        ),
        Mistake(
            "not-divided",
            "not normalized",
            "the exponentials are not divided by their sum",
            lambda x: (x - x.amax(-1, keepdim=True)).exp(),
        ),
        Mistake(
            "no-keepdim",
            "`keepdim` missing",
            "the sums of the rows are broadcast along the wrong axis: "
            "`keepdim=True` is missing",
            lambda x: (
                (x - x.amax(-1, keepdim=True)).exp()
                / (x - x.amax(-1, keepdim=True)).exp().sum(-1)
            ),
        ),
        Mistake(
            "log",
            "log-softmax instead of softmax",
            "it returns the logarithm of the softmax",
            lambda x: softmax(x).log(),
        ),
        Mistake(
            "reversed",
            "wrong sign",
            "the sign is wrong: small numbers get the large weights",
            lambda x: softmax(-x),
        ),
        Mistake(
            "base-two",
            "powers of 2 instead of e",
            "it uses powers of 2; softmax uses powers of e",
            lambda x: softmax(x * math.log(2)),
        ),
        Mistake(
            "hard-choice",
            "argmax instead of softmax",
            "the largest number gets all the weight; every number should get a share",
            lambda x: (x == x.amax(-1, keepdim=True)).to(x.dtype),
        ),
    ),
)
