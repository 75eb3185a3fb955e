"""The one place that calls a learner's function: outcomes come out as data.

Chapter: all of them
Source: none
Axes: none
"""

import contextlib
import copy
from collections.abc import Callable

from torch import Tensor, nn

from attnbook.exercises.guard import (
    Guard,
    Onlooker,
    modules,
    plant,
    untouched,
)
from attnbook.exercises.limits import SECONDS, SHOWN, Stopped, alarm, output
from attnbook.exercises.memory import Room
from attnbook.exercises.outcome import Case, Outcome
from attnbook.exercises.returned import parts, plain
from attnbook.exercises.way_back import backwards, import_late

# Every case is called once in each round, under that global seed: rounds 0 and
# 1 differ if the answer draws random numbers, 0 and 2 if it remembers.
ROUNDS = (11, 13, 11)

Rounds = tuple[tuple[Outcome, ...], ...]


def rounds(
    attempt: Callable,
    cases: tuple[Case, ...],
    forbidden: frozenset[str],
    shown: int = SHOWN,
    left: list[list] | None = None,
    seconds: float = SECONDS,
) -> Rounds:
    """Call the attempt on every case, in three rounds, until it is stopped.

    Of what it prints, `shown` characters of the first call are let through.
    `left` gets every call's inputs as the call left them, if it is given. No
    call may take longer than `seconds`.
    """
    import_late()
    stopped = None

    def once(case: Case, seed: int, shown: int) -> Outcome:
        nonlocal stopped
        if stopped is not None:
            return stopped
        with output(shown):
            found = run(attempt, case, forbidden, seed, left, seconds)
        if found.stopped:
            stopped = found
        return found

    with untouched():
        return tuple(
            tuple(
                once(case, seed, 0 if nth or i else shown)
                for i, case in enumerate(cases)
            )
            for nth, seed in enumerate(ROUNDS)
        )


def run(
    attempt: Callable,
    case: Case,
    forbidden: frozenset[str] = frozenset(),
    seed: int = ROUNDS[0],
    left: list[list] | None = None,
    seconds: float = SECONDS,
) -> Outcome:
    """Call the attempt on copies of a case's inputs; report what happened."""
    plant(seed)
    given = [copied(x) for x in case.inputs]
    if left is not None:
        left.append(given)
    leaves = {
        i: x.requires_grad_()
        for i, x in enumerate(given)
        if case.gradient and isinstance(x, Tensor) and x.is_floating_point()
    }
    for i, x in leaves.items():
        given[i] = x.clone()  # may be overwritten, and we would see it
    guard, onlooker = Guard(forbidden), Onlooker(given)
    room = Room(case.room, given) if case.room else contextlib.nullcontext()
    form, found, gradients, error, stopped = "", (), (), None, ""
    try:
        with alarm(seconds):
            with guard, onlooker, modules(), room:
                form, found = parts(attempt(*given))
            gradients = backwards(found, list(leaves.values()))
            found = tuple(plain(x) for x in found)
    except KeyboardInterrupt:
        raise
    except Stopped as limit:
        stopped, form, found, gradients = limit.slug, "", (), ()
    except BaseException as raised:  # a learner's code may raise anything
        if is_stub(raised):
            return Outcome(attempted=False)
        error = one_line(raised)
    pairs = enumerate(zip(given, case.inputs, strict=True))
    changed = (i for i, pair in pairs if not unchanged(*pair))
    return Outcome(
        form=form,
        output=found,
        gradients=gradients,
        floating=tuple(leaves),
        changed=tuple(changed),
        used=tuple(guard.used),
        library=tuple(onlooker.used),
        stopped=stopped,
        error=error,
    )


def copied(x):
    """Return a copy of an input: a tensor's numbers, anything else deeply.

    So every call meets a model of its own.
    """
    return x.clone() if isinstance(x, Tensor) else copy.deepcopy(x)


def unchanged(now, before) -> bool:
    """Tell whether an input is still what it was, to the last bit."""
    if isinstance(before, nn.Module):
        return same_model(now, before)
    if not isinstance(before, Tensor):
        return now == before
    if now.shape != before.shape or now.dtype != before.dtype:
        return False
    now = now.detach()
    return bool(((now == before) | (now.isnan() & before.isnan())).all())


def same_model(now, before: nn.Module) -> bool:
    """Tell whether a model has the same mode and the same numbers as before."""
    if type(now) is not type(before):
        return False
    modes = ([part.training for part in x.modules()] for x in (now, before))
    held, known = now.state_dict(), before.state_dict()
    return (
        next(modes) == next(modes)
        and held.keys() == known.keys()
        and all(unchanged(x, known[name]) for name, x in held.items())
    )


def is_stub(raised: BaseException) -> bool:
    """Tell a stub's NotImplementedError from one that torch raises."""
    torchs = ("not implemented for", 'required "forward"', "Could not run")
    return isinstance(raised, NotImplementedError) and not any(
        words in str(raised) for words in torchs
    )


def one_line(raised: BaseException) -> str:
    """Return an error as `Type: the first line of its message`, kept short."""
    first = next(iter(str(raised).strip().splitlines()), "")
    return f"{type(raised).__name__}: {first}"[:200].rstrip(": .")
