"""Trials from the outcomes that a student's process sent."""

import dataclasses

from attnbook.exercises.mistake import Trial
from attnbook.exercises.outcome import Outcome
from attnbook.exercises.runner import ROUNDS, is_unchanged
from attnbook.grade import messages


def make_trial(seed: int, cases: tuple, reply: dict) -> Trial:
    """Return the outcomes on one draw of cases; find the changed inputs.

    Raises:
        ValueError: if outcomes are missing or malformed.
    """
    rounds = tuple(tuple(map(messages.unpack_outcome, r)) for r in reply["rounds"])
    if not 2 <= len(rounds) <= len(ROUNDS) or any(len(r) != len(cases) for r in rounds):
        raise ValueError("calls are missing")
    if was_stopped(tried := Trial(seed, rounds)):
        return tried
    pairs = zip(cases * len(rounds), reply["left"], strict=True)
    changed = iter([find_changed(case.inputs, left) for case, left in pairs])
    return Trial(
        seed,
        tuple(tuple(add_changed(x, next(changed)) for x in r) for r in rounds),
    )


def was_stopped(tried: Trial) -> bool:
    """Tell whether a limit ended the calls."""
    return any(outcome.stopped for r in tried.rounds for outcome in r)


def add_changed(outcome: Outcome, changed: set[int]) -> Outcome:
    """Return an outcome with the changed inputs that were found here."""
    both = changed | {*outcome.changed}
    return dataclasses.replace(outcome, changed=tuple(sorted(both)))


def find_changed(before: tuple, after: list) -> set[int]:
    """Return the indices of the tensors that a call changed."""
    return {
        i
        for i, (x, y) in enumerate(zip(before, after, strict=True))
        if y is not None and not is_unchanged(messages.unpack(y), x)
    }
