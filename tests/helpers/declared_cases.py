"""The cases that an exercise declares, without those derived from them.

Deriving a case calls the solution. That would take too long while tests are
collected, because every worker process collects them all.
"""

import torch

from attnbook.exercises.exercise import FIRST, Case, Exercise


def draw_declared(exercise: Exercise) -> tuple[Case, ...]:
    """Return the cases that an exercise declares, on everyone's inputs."""
    return exercise.draw.draw(torch.Generator().manual_seed(FIRST))
