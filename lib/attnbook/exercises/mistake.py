"""What an exercise knows: wrong answers by name, and what an attempt did."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from attnbook.exercises.edit import edit_solution
from attnbook.exercises.runner import Rounds


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that people really give.

    Attributes:
        slug: its name in verdicts and reports: small letters and hyphens.
        title: a few words that name it for a person, in this exercise.
        because: the explanation in the verdict, after "because".
        answer: the wrong answer itself; or what `edit_solution` replaces in the
            solution of the exercise: one `old → new`, or several of them.
        by_rounding: whether it shows only where a number is rounded, which
            happens on other inputs on another processor.

    Raises:
        ValueError: if one of the four is missing or of another kind.
    """

    slug: str
    title: str
    because: str = ""
    answer: Callable | str | tuple[str, ...] = ()
    by_rounding: bool = False

    def __post_init__(self):
        words = isinstance(self.title, str) and isinstance(self.because, str)
        if not (words and self.title and self.because and self.answer):
            raise ValueError(
                f"the mistake {self.slug!r} needs a slug, a title, a sentence "
                f"and a wrong answer, in this order; it has title "
                f"{self.title!r} and sentence {self.because!r}"
            )

    def make_answer(self, solution: Callable) -> "Mistake":
        """Return the same mistake, with its answer made from the solution."""
        if callable(self.answer):
            return self
        one = isinstance(self.answer, str)
        changes = (self.answer,) if one else self.answer
        return replace(self, answer=edit_solution(solution, *changes))


@dataclass(frozen=True)
class Trial:
    """What an attempt did on the inputs drawn from one seed."""

    seed: int
    rounds: Rounds
