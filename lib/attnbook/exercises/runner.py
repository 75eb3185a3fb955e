"""The only module that calls a learner's function; it returns only data."""

import contextlib
import dis
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from attnbook.exercises.backward_pass import preload_backward, run_backward
from attnbook.exercises.copying import copy_input
from attnbook.exercises.guard import (
    Guard,
    LibraryCallRecorder,
    ModuleRestorer,
    preserve_state,
    seed_everything,
)
from attnbook.exercises.limits import (
    SECONDS,
    SHOWN,
    Stopped,
    limit_output,
    limit_time,
)
from attnbook.exercises.memory_limit import MemoryLimit
from attnbook.exercises.outcome import Case, Outcome, is_same_outcome
from attnbook.exercises.result import copy_numbers, read_result

# Every case is called once in each round, under that global seed. Rounds 0 and
# 1 differ if the answer draws random numbers or keeps state between calls; then
# there is a third round, which differs from the first if it keeps state.
ROUNDS = (11, 13, 11)

Rounds = tuple[tuple[Outcome, ...], ...]


def run_rounds(
    attempt: Callable,
    cases: tuple[Case, ...],
    forbidden: frozenset[str],
    shown: int = SHOWN,
    left: list[list] | None = None,
    seconds: float = SECONDS,
    *,
    thorough: bool = True,
) -> Rounds:
    """Call the attempt on every case, in one to three rounds, until stopped.

    Without `thorough` there is one round, and it records no calls. That is
    enough for fresh inputs after a thorough run on the first ones.

    Of what it prints, `shown` characters of the first call are let through.
    `left` gets every call's inputs as the call left them, if it is given. No
    call may take longer than `seconds`.

    Calls of this book's own functions and of forbidden ones are recorded in the
    first round only. Later rounds measure memory only for cases whose first
    call raised an error. An answer that keeps to the rules on every case in the
    first round needs no second check.
    """
    preload_backward()
    stopped, kept = None, ModuleRestorer()

    def once(case: Case, nth: int, shown: int) -> Outcome:
        nonlocal stopped
        if stopped is not None:
            return stopped
        with limit_output(shown):
            found = run(
                attempt,
                case,
                forbidden,
                ROUNDS[nth],
                left,
                seconds,
                thorough and nth == 0,
                kept,
            )
        if found.stopped:
            stopped = found
        return found

    with preserve_state():
        first = tuple(once(case, 0, 0 if i else shown) for i, case in enumerate(cases))
        if not thorough:
            return (first,)
        later_cases = [
            case if outcome.error else replace(case, memory_limit=None)
            for case, outcome in zip(cases, first, strict=True)
        ]
        second = tuple(once(case, 1, 0) for case in later_cases)
        if all(map(is_same_outcome, first, second)):
            return first, second
        return first, second, tuple(once(case, 2, 0) for case in later_cases)


def run(
    attempt: Callable,
    case: Case,
    forbidden: frozenset[str] = frozenset(),
    seed: int = ROUNDS[0],
    left: list[list] | None = None,
    seconds: float = SECONDS,
    watched: bool = True,
    kept: ModuleRestorer | None = None,
) -> Outcome:
    """Call the attempt on copies of a case's inputs; report what happened.

    Without `watched`, calls of this book's own functions and of what is
    forbidden are not noted, which saves much of the time. `kept` puts back the
    modules that the call removes; an answer of this book's own needs neither.
    """
    seed_everything(seed)
    given = [copy_input(x) for x in case.inputs]
    if left is not None:
        left.append(given)
    leaves = {
        i: x.requires_grad_()
        for i, x in enumerate(given)
        if case.gradient and isinstance(x, Tensor) and x.is_floating_point()
    }
    for i, x in leaves.items():
        given[i] = x.clone()  # may be overwritten, and we would see it
    guard = Guard(forbidden)
    recorder = LibraryCallRecorder(given, guard)
    contexts = [guard, recorder] if watched else []
    contexts += [kept] if kept else []
    if case.memory_limit:
        contexts += [MemoryLimit(case.memory_limit, case.count_arrays)]
    found: tuple[Tensor, ...] = ()
    gradients: tuple[Tensor, ...] = ()
    form, error, stopped = "", None, ""
    try:
        with limit_time(seconds):
            with contextlib.ExitStack() as entered:
                for each in contexts:
                    entered.enter_context(each)
                returned = attempt(*given)
                form, found = read_result(returned, given, case.probe)
            gradients = run_backward(found, list(leaves.values()))
            found = tuple(copy_numbers(x) for x in found)
    except KeyboardInterrupt:
        raise
    except Stopped as limit:
        stopped, form, found, gradients = limit.slug, "", (), ()
    except BaseException as raised:  # a learner's code may raise anything
        if is_stub(raised):
            return Outcome(attempted=False)
        error = format_error(raised)
    pairs = enumerate(zip(given, case.inputs, strict=True))
    changed = (i for i, pair in pairs if not is_unchanged(*pair))
    return Outcome(
        form=form,
        output=found,
        gradients=gradients,
        floating=tuple(leaves),
        changed=tuple(changed),
        used=tuple(guard.used),
        library=tuple(recorder.used),
        stopped=stopped,
        error=error,
    )


def is_unchanged(now, before) -> bool:
    """Tell whether an input is still what it was, to the last bit."""
    if isinstance(before, nn.Module):
        return is_same_model(now, before)
    if not isinstance(before, Tensor):
        return now == before
    if now.shape != before.shape or now.dtype != before.dtype:
        return False
    now = now.detach()
    return torch.equal(now, before) or bool(
        ((now == before) | (now.isnan() & before.isnan())).all()
    )


def is_same_model(now, before: nn.Module) -> bool:
    """Tell whether a model has the same mode and the same numbers as before."""
    if type(now) is not type(before):
        return False
    modes = ([part.training for part in x.modules()] for x in (now, before))
    held, known = now.state_dict(), before.state_dict()
    return (
        next(modes) == next(modes)
        and held.keys() == known.keys()
        and all(is_unchanged(x, known[name]) for name, x in held.items())
    )


def is_stub(raised: BaseException) -> bool:
    """Tell a stub's NotImplementedError from one that PyTorch raises.

    A stub's comes from a `raise` outside PyTorch. PyTorch's own come from C++
    code, where the last of Python's instructions is a call, or from a `raise`
    in one of its modules.
    """
    torchs = ("not implemented for", 'required "forward"', "Could not run")
    if not isinstance(raised, NotImplementedError) or any(
        words in str(raised) for words in torchs
    ):
        return False
    trace = raised.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    module = trace.tb_frame.f_globals.get("__name__") or ""
    code = trace.tb_frame.f_code.co_code
    by_raise = dis.opname[code[trace.tb_lasti]] in ("RAISE_VARARGS", "RERAISE")
    return by_raise and module.partition(".")[0] != "torch"


def format_error(raised: BaseException) -> str:
    """Return an error as `Type: the first line of its message`, kept short."""
    first = next(iter(str(raised).strip().splitlines()), "")
    return f"{type(raised).__name__}: {first}"[:200].rstrip(": .")
