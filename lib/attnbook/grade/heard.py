"""Trials made of what came over the wire; changed inputs are found here.

Chapter: all of them
Source: none
Axes: none
"""

import dataclasses

from attnbook.exercises.mistake import Trial
from attnbook.exercises.outcome import Outcome
from attnbook.exercises.runner import ROUNDS, unchanged
from attnbook.grade import wire


def trial(seed: int, cases: tuple, told: dict) -> Trial:
    """Return what was tried on one draw; changed inputs are found here.

    Raises:
        ValueError: if that is not what was told.
    """
    rounds = tuple(tuple(map(wire.heard, r)) for r in told["rounds"])
    if len(rounds) != len(ROUNDS) or any(len(r) != len(cases) for r in rounds):
        raise ValueError("calls are missing")
    if stopped(tried := Trial(seed, rounds)):
        return tried
    pairs = zip(cases * len(rounds), told["left"], strict=True)
    changed = iter([compared(case.inputs, left) for case, left in pairs])
    return Trial(
        seed, tuple(tuple(seen(x, next(changed)) for x in r) for r in rounds)
    )


def stopped(tried: Trial) -> bool:
    """Tell whether a limit ended the calls."""
    return any(outcome.stopped for r in tried.rounds for outcome in r)


def seen(outcome: Outcome, changed: set[int]) -> Outcome:
    """Return an outcome with the changes of inputs that were seen here."""
    both = changed | {*outcome.changed}
    return dataclasses.replace(outcome, changed=tuple(sorted(both)))


def compared(before: tuple, after: list) -> set[int]:
    """Return the places of the tensors that a call changed."""
    return {
        i
        for i, (x, y) in enumerate(zip(before, after, strict=True))
        if y is not None and not unchanged(wire.unpack(y), x)
    }
