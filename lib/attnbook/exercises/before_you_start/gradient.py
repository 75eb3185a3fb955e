"""Exercise: let autograd differentiate.

Chapter: chapters/00_before_you_start
Source: PyTorch's notes on autograd mechanics
Axes: S entries
"""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake
from attnbook.exercises.inputs import doubled, normal
from attnbook.solutions.before_you_start import gradient


def draw(rng: torch.Generator) -> tuple[Case, ...]:
    """Two numbers, then more, then large and precise ones."""
    x = normal(rng, 7)
    return (
        Case("on two numbers", (normal(rng, 2),)),
        Case("on seven numbers", (x,)),
        Case("on large numbers", (x + 500,)),
        Case("in double precision", doubled((x,))),
    )


def differentiated(f, times=1.0):
    """Return the gradient of another function, or a multiple of it."""

    def answer(x):
        x = x.detach().requires_grad_()
        return times * torch.autograd.grad(f(x), x)[0]

    return answer


def squares(x):
    """Return the sum of squares of the softmax."""
    return (x.softmax(-1) ** 2).sum()


check_gradient = Exercise(
    title="a gradient by autograd",
    stars=2,
    minutes=5,
    section="Autograd",
    solution=gradient,
    returns=("gradient",),
    draw=draw,
    mistakes=(
        Mistake("value", "it returns the value, not its gradient", squares),
        Mistake(
            "weights",
            "it returns the softmax, not a gradient",
            lambda x: x.softmax(-1),
        ),
        Mistake(
            "half-chain",
            "the chain stops at the softmax: it is the gradient with respect "
            "to the weights, not to x",
            lambda x: 2 * x.softmax(-1),
        ),
        Mistake(
            "entry-by-entry",
            "softmax is taken for a function of one number; each weight "
            "depends on every entry of x",
            lambda x: 2 * x.softmax(-1) ** 2 * (1 - x.softmax(-1)),
        ),
        Mistake(
            "constant",
            "what is differentiated is constant: weights sum to 1 whatever x "
            "is, so the squares must be taken before the sum",
            differentiated(lambda x: x.softmax(-1).sum()),
        ),
        Mistake(
            "no-softmax",
            "the softmax is missing: it is the gradient of the squares of x",
            lambda x: 2 * x,
        ),
        Mistake(
            "mean",
            "it is the gradient of the mean, not of the sum",
            differentiated(lambda x: squares(x) / len(x)),
        ),
        Mistake(
            "twice",
            "the gradient is there twice: `backward` adds to `.grad`",
            differentiated(squares, times=2.0),
        ),
        Mistake(
            "descent",
            "the sign is turned: it is the step downhill",
            differentiated(squares, times=-1.0),
        ),
        Mistake(
            "square-first",
            "the square comes before the softmax",
            differentiated(lambda x: ((x**2).softmax(-1)).max()),
        ),
        Mistake(
            "step-too-rough",
            "it is a difference quotient, which rounding spoils; autograd is "
            "exact",
            lambda x: torch.stack(
                [
                    (squares(x + 1e-4 * e) - squares(x)) / 1e-4
                    for e in torch.eye(len(x), dtype=x.dtype)
                ]
            ),
        ),
    ),
)
