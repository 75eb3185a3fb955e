"""The cases that an exercise declares, without those derived from them.

Deriving cases takes a call of the solution for each, which is too much where
tests are collected: every process collects all of them.
"""

import torch

from attnbook.exercises.exercise import FIRST, Case, Exercise


def draw_declared(exercise: Exercise) -> tuple[Case, ...]:
    """Return the cases that an exercise declares, on everyone's inputs."""
    return exercise.draw.draw(torch.Generator().manual_seed(FIRST))
