"""What this book's own answers give, stored from one check to the next.

A refusal is compared with every declared mistake, on the same inputs for
everyone and on those of one draw: most of it has been computed before.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache

import torch

from attnbook.exercises.guard import preserve_state
from attnbook.exercises.mistake import Trial
from attnbook.exercises.outcome import Case, Outcome, read_like
from attnbook.exercises.runner import run
from attnbook.exercises.tolerance import DRAWS, RandomRounding

Draw = Callable[[torch.Generator], tuple[Case, ...]]


@lru_cache(maxsize=8)
def draw_cases(draw: Draw, seed: int) -> tuple[Case, ...]:
    """Return the cases drawn from a seed; every call gets copies of them."""
    return draw(torch.Generator().manual_seed(seed))


@lru_cache(maxsize=16384)
def compute_outcome(
    draw: Draw, answer: Callable, seed: int, nth: int, watched: bool = False
) -> Outcome:
    """Return what an answer of this book's own gives in one case."""
    with preserve_state():
        return run(answer, draw_cases(draw, seed)[nth], watched=watched)


def list_outcomes(
    draw: Draw, answer: Callable, seed: int, watched: bool = False
) -> Iterator[Outcome]:
    """Yield what an answer of this book's own gives, case by case.

    With `watched`, it is also known which of the book's functions got all its
    inputs. What was stopped, as when a computer slept, is not stored.
    """
    for nth in range(len(draw_cases(draw, seed))):
        found = compute_outcome(draw, answer, seed, nth, watched)
        if found.stopped:
            compute_outcome.cache_clear()
            found = compute_outcome(draw, answer, seed, nth, watched)
        yield found


def read_trial(draw: Draw, solution: Callable, trial: Trial) -> Trial:
    """Return a trial with numbers held as the solution's are."""
    wants = list(list_outcomes(draw, solution, trial.seed))
    return replace(
        trial,
        rounds=tuple(tuple(map(read_like, r, wants)) for r in trial.rounds),
    )


class DrawnOutcomes:
    """The outcomes of an answer: first as it is, then with random roundings.

    A draw is made when it is first asked for.

    Args:
        answer: one of this book's own.
        case: of an exercise.
        usual: what the answer gives as it is.
        precision: of the roundings; that of the result, unless given.
    """

    def __init__(
        self,
        answer: Callable,
        case: Case,
        usual: Outcome,
        precision: torch.dtype | None,
    ):
        kinds = [x.dtype for x in usual.output if x.is_floating_point()]
        self.answer, self.usual = answer, usual
        self.case = replace(case, memory_limit=None)
        self.precision = precision or next(iter(kinds), None)
        self.most = DRAWS if kinds else 0
        self.drawn: list[Outcome] = []

    def take(self, count: int) -> tuple[Outcome, ...]:
        """Return the answer's outcome, and those of the first draws.

        One that was stopped, or whose tensors have other shapes, is left out.
        """
        count = min(count, self.most)
        if len(self.drawn) < count:
            with preserve_state():
                for i in range(len(self.drawn), count):
                    with RandomRounding(self.precision, seed=i):
                        found = run(self.answer, self.case, watched=False)
                    self.drawn.append(found)
        shapes = [x.shape for x in self.usual.tensors]
        kept = (x for x in self.drawn[:count] if [y.shape for y in x.tensors] == shapes)
        return self.usual, *kept


@lru_cache(maxsize=2048)
def draw_outcomes(
    draw: Draw,
    answer: Callable,
    seed: int,
    nth: int,
    precision: torch.dtype | None = None,
) -> DrawnOutcomes:
    """Return what makes an answer's outcomes with random roundings."""
    usual = compute_outcome(draw, answer, seed, nth)
    return DrawnOutcomes(answer, draw_cases(draw, seed)[nth], usual, precision)
