"""Wrong answers, one module per chapter; each must be refused by its name.

`ANSWERS` of a module maps an exercise's name to its wrong answers. Together
with the mistakes declared beside the exercise they are its bank.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Wrong:
    """A wrong answer.

    Attributes:
        slug: the name that the check must call it by.
        why: where it comes from, or why a person would write it.
        still: the cheapest thing it still gets right.
        answer: the function.
    """

    slug: str
    why: str
    still: str
    answer: Callable
