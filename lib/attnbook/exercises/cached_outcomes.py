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


@lru_cache(maxsize=2048)
def draw_outcomes(
    draw: Draw,
    answer: Callable,
    seed: int,
    nth: int,
    precision: torch.dtype | None = None,
) -> tuple[Outcome, ...]:
    """Return what an answer gives as it is, and then with random roundings.

    The roundings are those of the result's precision, unless another is given.
    A draw that was stopped, or whose tensors have other shapes, is left out.
    """

    def shapes(given: Outcome) -> list[torch.Size]:
        return [x.shape for x in given.tensors]

    usual = compute_outcome(draw, answer, seed, nth)
    kinds = [x.dtype for x in usual.output if x.is_floating_point()]
    case = replace(draw_cases(draw, seed)[nth], memory_limit=None)
    found = [usual]
    with preserve_state():
        for i in range(DRAWS if kinds else 0):
            with RandomRounding(precision or kinds[0], seed=i):
                found.append(run(answer, case, watched=False))
    return tuple(x for x in found if shapes(x) == shapes(usual))
