"""What an exercise knows: wrong answers by name, and what an attempt did.

Chapter: all of them
Source: none
Axes: none
"""

from collections.abc import Callable
from dataclasses import dataclass

from attnbook.exercises.runner import Rounds


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that people really give.

    Attributes:
        slug: its name.
        because: how to say it, after "because".
        answer: the wrong answer itself.
    """

    slug: str
    because: str
    answer: Callable


@dataclass(frozen=True)
class Trial:
    """What an attempt did on the inputs drawn from one seed."""

    seed: int
    rounds: Rounds
