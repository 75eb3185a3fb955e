"""An exercise of three lines, on which the engine itself is tried."""

import torch

from attnbook.exercises.exercise import Case, Exercise, Mistake


def draw(rng):
    x = torch.randn(3, generator=rng)
    return Case("on zeros", (torch.zeros(2), 1)), Case("on x", (x, 2), True)


double = Exercise(
    title="twice",
    stars=1,
    minutes=1,
    section="Twice",
    solution=lambda x, n: 2 * x,
    returns=("y",),
    draw=draw,
    mistakes=(Mistake("once", "once", "it is there once", lambda x, n: x + 0),),
)
