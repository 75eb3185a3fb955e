"""The verdict of a check, and its wording."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnbook.exercises.limits import CHARACTERS, SECONDS
from attnbook.exercises.outcome import Draws, Outcome, differing

LIMITS = {"too-long": f"{SECONDS:.0f}", "too-much": f"{CHARACTERS:,}"}

# Mistakes that are possible in every exercise; each exercise adds its own.
COMMON = {
    "not-a-function": "the check got {what}; pass the function itself",
    "ready-made": "it calls {what}, which computes the whole answer; write "
    "the computation yourself",
    "random": "it draws random numbers: with another global seed, the same "
    "inputs give a different result",
    "state": "it keeps state between calls: a second call with the same "
    "inputs gives a different result",
    "none": "it returns None: is a `return` missing?",
    "type": "it returns {what} and should return {right}",
    "changed-input": "it changes its input `{what}` in place",
    "changed-model": "it changes `{what}`: after the call, the training mode "
    "or the parameters are different",
    "error": "it raises {what}",
    "too-long": "it was stopped after {what} seconds: is there an infinite "
    "loop?",
    "too-much": "it was stopped after {what} printed characters: is there "
    "an infinite loop?",
    "shape": "{what} has the shape {seen} and should have {right}",
    "length": "`{what}` has the length {seen} and should have {right}",
    "dtype": "{what} is {seen} and should be {right}",
    "nan": "{what} is NaN",
    "detached": "no gradient reaches `{what}`: is it cut off by `detach`, "
    "`no_grad`, `.data` or a conversion to Python numbers?",
    "gradient": "the values are right, but the gradient of {what} is {seen} "
    "and should be {right}",
    "numbers": "{what} is {seen} and should be {right}",
    "hard-coded": "it is right on the first inputs and wrong on new ones, "
    "as if the results were hard-coded ({what})",
}


@dataclass(frozen=True)
class Verdict:
    """The verdict of a check: one line, true only when right.

    Attributes:
        mark: `…` not attempted, `✗` wrong, `✓` right.
        message: what follows the mark.
        mistake: the slug of what went wrong, or None.
    """

    mark: str
    message: str
    mistake: str | None = None

    def __repr__(self) -> str:
        return f"{self.mark} {self.message}"

    def __bool__(self) -> bool:
        return self.mark == "✓"


@dataclass(frozen=True)
class Finding:
    """The first thing that is wrong in one call, before it is worded."""

    slug: str
    sentence: str


def common(slug: str, **words) -> Finding:
    """Return a common mistake with its sentence filled in."""
    return Finding(slug, COMMON[slug].format(**words))


def look(
    got: Outcome,
    want: Outcome,
    takes: Sequence[str],
    returns: Sequence[str],
    draws: Draws = tuple,
) -> Finding | None:
    """Return the first thing that is wrong with an outcome, or None.

    Args:
        got: what the attempt did.
        want: what the solution did.
        takes: the names of the inputs.
        returns: the names of the outputs.
        draws: what the solution does with random roundings.
    """
    if got.form == "None":
        return common("none")
    if got.changed:
        what = takes[got.changed[0]]
        kind = "model" if what == "model" else "input"
        return common(f"changed-{kind}", what=what)
    if got.error:
        return common("error", what=got.error)
    if want.form == "a number" and got.form == "a tensor":
        got = as_number(got)
    if got.form != want.form:
        return common("type", what=got.form, right=want.form)
    if "list" in want.form and len(got.output[0]) != len(want.output[0]):
        seen, right = (len(x.output[0]) for x in (got, want))
        return common("length", what=returns[0], seen=seen, right=right)
    for i, name in enumerate(returns):
        ours, theirs = got.output[i], want.output[i]
        if finding := look_at_tensor(name, ours, theirs, draws, i):
            return finding
    return look_at_gradients(got, want, takes, draws)


def as_number(got: Outcome) -> Outcome:
    """Accept a tensor with one entry where a number is expected."""
    if [x.numel() for x in got.output] != [1]:
        return got
    number = got.output[0].reshape(()).float()
    return replace(got, form="a number", output=(number,), gradients=())


def look_at_tensor(
    name: str, ours: Tensor, theirs: Tensor, draws: Draws, nth: int
) -> Finding | None:
    """Compare one returned tensor, the nth, with the right one."""
    if ours.shape != theirs.shape:
        seen, right = (str(tuple(x.shape)) for x in (ours, theirs))
        return common("shape", what=f"`{name}`", seen=seen, right=right)
    if ours.dtype != theirs.dtype:
        like = ", like the inputs" if theirs.is_floating_point() else ""
        return common(
            "dtype",
            what=f"`{name}`",
            seen=ours.dtype,
            right=f"{theirs.dtype}{like}",
        )
    empty = ours.isnan() & ~theirs.isnan()
    if empty.any():
        return common("nan", what=place(name, first(empty)))
    wrong = differing(ours, theirs, draws, nth)
    if not wrong.any():
        return None
    where = first(wrong)
    seen, right = apart(ours[where], theirs[where])
    return common("numbers", what=place(name, where), seen=seen, right=right)


def look_at_gradients(
    got: Outcome, want: Outcome, takes: Sequence[str], draws: Draws
) -> Finding | None:
    """Compare the gradients of the floating-point inputs."""
    for nth, (i, ours, theirs) in enumerate(
        zip(want.floating, got.gradients, want.gradients, strict=True),
        start=len(want.output),
    ):
        wrong = differing(ours, theirs, draws, nth)
        if not wrong.any():
            continue
        if not ours.any():
            return common("detached", what=takes[i])
        where = first(wrong)
        seen, right = apart(ours[where], theirs[where])
        what = place(takes[i], where)
        return common("gradient", what=what, seen=seen, right=right)
    return None


def first(where: Tensor) -> tuple[int, ...]:
    """Return the index of the first True."""
    return tuple(torch.nonzero(where)[0].tolist())


def place(name: str, where: tuple[int, ...]) -> str:
    """Return how an entry is written: `weights[0, 2]`."""
    return f"`{name}[{', '.join(map(str, where))}]`" if where else f"`{name}`"


def apart(ours: Tensor, theirs: Tensor) -> tuple[str, str]:
    """Return two numbers with three digits, or as many as tell them apart."""
    a, b = ours.item(), theirs.item()
    if isinstance(a, int | bool):
        return str(a), str(b)
    for digits in range(3, 17):
        said = f"{a:.{digits}g}", f"{b:.{digits}g}"
        if said[0] != said[1]:
            break
    one, other = (x.replace("nan", "NaN") for x in said)
    return one, other
