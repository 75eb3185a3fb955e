"""Exercise: let autograd differentiate.

Source: PyTorch's notes on autograd mechanics
Axes: S entries
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import draw_normal, to_double


def gradient(x: Float[Tensor, " S"]) -> Float[Tensor, " S"]:
    """Return the gradient of the sum of squares of softmax(x)."""
    x = x.detach().requires_grad_()
    return torch.autograd.grad((x.softmax(-1) ** 2).sum(), x)[0]


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Two numbers, then more, then large and precise ones."""
    x = draw_normal(rng, 7)
    return (
        Case("on two numbers", (draw_normal(rng, 2),)),
        Case("on seven numbers", (x,)),
        Case("on large numbers", (x + 500,)),
        Case("in double precision", to_double((x,)), asked=False),
    )


def differentiate(f, times=1.0):
    """Return the gradient of another function, or a multiple of it."""

    def answer(x):
        x = x.detach().requires_grad_()
        return times * torch.autograd.grad(f(x), x)[0]

    return answer


def sum_squares(x):
    """Return the sum of squares of the softmax."""
    return (x.softmax(-1) ** 2).sum()


def difference_quotients(x, step=1e-4):
    """Return the difference quotient for each entry, without a loop.

    A step of one entry multiplies its exponential alone: the sums follow from
    the weights. A loop over 5,003 entries would take most of a minute. The
    step is the one that remains after rounding.
    """
    weights = x.softmax(-1)
    squares, taken = weights**2, (x + step) - x
    total = 1 + weights * taken.expm1()
    moved = (squares.sum() + squares * (2 * taken).expm1()) / total**2
    return (moved - squares.sum()) / step


check_gradient = Exercise(
    title="a gradient with autograd",
    stars=2,
    minutes=5,
    section="Autograd",
    solution=gradient,
    returns=("gradient",),
    draw=draw,
    mistakes=(
        Mistake(
            "value",
            "value instead of the gradient",
            "it returns the sum of the squares, not its gradient",
            sum_squares,
        ),
        Mistake(
            "weights",
            "softmax instead of the gradient",
            "it returns the softmax, not a gradient",
            lambda x: x.softmax(-1),
        ),
        Mistake(
            "half-chain",
            "chain rule applied half-way",
            "the chain rule stops at the softmax: this is the gradient with "
            "respect to the weights, not with respect to x",
            lambda x: 2 * x.softmax(-1),
        ),
        Mistake(
            "entry-by-entry",
            "softmax treated as elementwise",
            "the softmax is differentiated as an elementwise function; each "
            "weight depends on every entry of x",
            lambda x: 2 * x.softmax(-1) ** 2 * (1 - x.softmax(-1)),
        ),
        Mistake(
            "constant",
            "constant function differentiated",
            "the sum of the weights is differentiated, which is 1 for every "
            "x; the exercise asks for the sum of their squares",
            differentiate(lambda x: x.softmax(-1).sum()),
        ),
        Mistake(
            "no-softmax",
            "no softmax",
            "the softmax is missing: this is the gradient of the sum of the "
            "squares of x",
            lambda x: 2 * x,
        ),
        Mistake(
            "mean",
            "mean instead of a sum",
            "this is the gradient of the mean of the squares; the exercise "
            "asks for their sum",
            differentiate(lambda x: sum_squares(x) / len(x)),
        ),
        Mistake(
            "twice",
            "gradient accumulated twice",
            "the gradient is accumulated twice: each call of `backward` adds "
            "to `.grad`",
            differentiate(sum_squares, times=2.0),
        ),
        Mistake(
            "descent",
            "wrong sign",
            "the sign is wrong: this is the negative gradient, the direction "
            "of gradient descent",
            differentiate(sum_squares, times=-1.0),
        ),
        Mistake(
            "square-first",
            "squared before the softmax",
            "`x` is squared before the softmax; the weights should be squared after it",
            differentiate(lambda x: ((x**2).softmax(-1)).max()),
        ),
        Mistake(
            "step-too-rough",
            "finite difference",
            "it uses a finite difference, which is only approximate; use "
            "autograd, whose only error is rounding",
            difference_quotients,
        ),
    ),
)
