"""How far right and wrong answers lie from an exercise's tolerances.

`make margins` prints one row for each exercise: the right answer that uses most
of a tolerance, and the wrong one that exceeds its tolerances least. For some
chapters alone, their modules are named, as in
`PYTHONPATH=tests:tests/helpers python tests/helpers/margins.py luong masks`.
"""

import copy
import importlib
import math
import sys
from collections.abc import Callable, Iterator

from attnbook.exercises.cached_outcomes import list_outcomes
from attnbook.exercises.exercise import FIRST, Exercise
from attnbook.exercises.guard import preserve_state
from attnbook.exercises.outcome import (
    Outcome,
    read_error_type,
    read_like,
    take_draws,
)
from attnbook.exercises.runner import run
from attnbook.exercises.tolerance import compute_tolerance_share
from workshop.book.mistakes import Entry, list_entries

# What these do shows only when they are called twice, or with other inputs.
NOT_IN_ONE_CALL = {"state", "random", "hard-coded", "ready-made"}


def shares(
    exercise: Exercise, answer: Callable, seed: int = FIRST
) -> Iterator[tuple[float, str]]:
    """Yield case by case how much of its tolerance an answer uses.

    Infinity where something else than floating-point numbers differs: an error,
    a shape, a type, a whole number. Cases that an exercise does not ask for in
    words are left out: an answer that fails one of them is right.
    """
    wants = list_outcomes(exercise.draw, exercise.solution, seed)
    with preserve_state():
        for nth, (case, want) in enumerate(
            zip(exercise.draw_cases(seed), wants, strict=True)
        ):
            if not case.asked:
                continue
            got = run(answer, case, watched=False)
            got, want = map(exercise.compare_by, (got, want))
            draws = exercise.make_draws(exercise.solution, seed, nth)
            yield share(got, want, draws), case.tries


def share(got: Outcome, want: Outcome, draws: Callable) -> float:
    """Return the largest share of a tolerance in one case."""
    got = read_like(got, want)
    if (read_error_type(got.error), got.form, got.changed) != (
        None,
        want.form,
        (),
    ):
        return math.inf
    if [(x.shape, x.dtype) for x in got.tensors] != [
        (x.shape, x.dtype) for x in want.tensors
    ]:
        return math.inf
    largest = 0.0
    for nth, (ours, right) in enumerate(zip(got.tensors, want.tensors, strict=True)):
        if not ours.equal(right):
            drawn = take_draws(draws, nth)
            found = compute_tolerance_share(ours, right, drawn)
            largest = max(largest, float(found.max()))
    return largest


def right(entry: Entry) -> list[tuple[str, Callable]]:
    """Return the stored right answers to an exercise, with their names."""
    module = importlib.import_module(f"right_answers.{entry.module}")
    return list(module.ANSWERS[entry.name])


def wrong(entry: Entry) -> list[tuple[str, Callable]]:
    """Return its wrong answers, the declared mistakes first."""
    module = importlib.import_module(f"wrong_answers.{entry.module}")
    named = [(x.slug, x.answer) for x in entry.exercise.mistakes]
    named += [
        (f"{x.slug}: {x.why}", copy.deepcopy(x.answer))
        for x in module.ANSWERS[entry.name]
        if x.slug not in NOT_IN_ONE_CALL
    ]
    return named


def furthest(entry: Entry, answer: Callable) -> tuple[float, str]:
    """Return the largest share of an answer over all cases, and the case."""
    return max(shares(entry.exercise, answer), key=lambda x: x[0])


def margins(entry: Entry) -> tuple[tuple, tuple]:
    """Return the tightest right answer and the closest wrong one.

    Each with its share, the case and its name.
    """
    accepted, refused = (
        [(*furthest(entry, answer), name) for name, answer in answers]
        for answers in (right(entry), wrong(entry))
    )
    return max(accepted), min(refused)


def main(chapters: list[str]) -> None:
    """Print the table, and its two extremes."""
    print("| exercise | tightest right | | closest wrong | |")
    print("|---|---|---|---|---|")
    rows = []
    for entry in list_entries():
        if chapters and entry.module not in chapters:
            continue
        rows.append(margins(entry))
        (most, case, name), (least, at, bad) = rows[-1]
        print(
            f"| {entry.name} | {most:.3f} | {name}, {case} "
            f"| {least:.3g} | {bad}, {at} |",
            flush=True,
        )
    most, least = max(x[0][0] for x in rows), min(x[1][0] for x in rows)
    print(
        f"\n{len(rows)} exercises: every right answer uses at most {most:.3f} "
        f"of its tolerances, every wrong one exceeds one {least:.3g} times"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
