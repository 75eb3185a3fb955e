"""The verdict of a check, and its wording."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnbook.exercises.limits import CHARACTERS, SECONDS
from attnbook.exercises.outcome import Draws, Outcome, find_differences

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


def make_finding(slug: str, **words) -> Finding:
    """Return a common mistake with its sentence filled in."""
    return Finding(slug, COMMON[slug].format(**words))


def find_difference(
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
        return make_finding("none")
    if got.changed:
        what = takes[got.changed[0]]
        kind = "model" if what == "model" else "input"
        return make_finding(f"changed-{kind}", what=what)
    if got.error:
        return make_finding("error", what=got.error)
    if want.form == "a number" and got.form == "a tensor":
        got = read_as_number(got)
    if got.form != want.form:
        return make_finding("type", what=got.form, right=want.form)
    if "list" in want.form and len(got.output[0]) != len(want.output[0]):
        seen, right = (len(x.output[0]) for x in (got, want))
        return make_finding("length", what=returns[0], seen=seen, right=right)
    for i, name in enumerate(returns):
        ours, theirs = got.output[i], want.output[i]
        if finding := compare_tensors(name, ours, theirs, draws, i):
            return finding
    return compare_gradients(got, want, takes, draws)


def read_as_number(got: Outcome) -> Outcome:
    """Accept a tensor with one entry where a number is expected."""
    if [x.numel() for x in got.output] != [1]:
        return got
    number = got.output[0].reshape(()).float()
    return replace(got, form="a number", output=(number,), gradients=())


def compare_tensors(
    name: str, ours: Tensor, theirs: Tensor, draws: Draws, nth: int
) -> Finding | None:
    """Compare one returned tensor, the nth, with the right one."""
    if ours.shape != theirs.shape:
        seen, right = (str(tuple(x.shape)) for x in (ours, theirs))
        return make_finding("shape", what=f"`{name}`", seen=seen, right=right)
    if ours.dtype != theirs.dtype:
        like = ", like the inputs" if theirs.is_floating_point() else ""
        return make_finding(
            "dtype",
            what=f"`{name}`",
            seen=ours.dtype,
            right=f"{theirs.dtype}{like}",
        )
    empty = ours.isnan() & ~theirs.isnan()
    if empty.any():
        return make_finding("nan", what=write_entry(name, find_first(empty)))
    wrong = find_differences(ours, theirs, draws, nth)
    if not wrong.any():
        return None
    where = find_first(wrong)
    seen, right = write_pair(ours[where], theirs[where])
    return make_finding(
        "numbers", what=write_entry(name, where), seen=seen, right=right
    )


def compare_gradients(
    got: Outcome, want: Outcome, takes: Sequence[str], draws: Draws
) -> Finding | None:
    """Compare the gradients of the floating-point inputs."""
    for nth, (i, ours, theirs) in enumerate(
        zip(want.floating, got.gradients, want.gradients, strict=True),
        start=len(want.output),
    ):
        wrong = find_differences(ours, theirs, draws, nth)
        if not wrong.any():
            continue
        if not ours.any():
            return make_finding("detached", what=takes[i])
        where = find_first(wrong)
        seen, right = write_pair(ours[where], theirs[where])
        what = write_entry(takes[i], where)
        return make_finding("gradient", what=what, seen=seen, right=right)
    return None


def find_first(where: Tensor) -> tuple[int, ...]:
    """Return the index of the first True."""
    return tuple(torch.nonzero(where)[0].tolist())


def write_entry(name: str, where: tuple[int, ...]) -> str:
    """Return how an entry is written: `weights[0, 2]`."""
    return f"`{name}[{', '.join(map(str, where))}]`" if where else f"`{name}`"


def write_pair(ours: Tensor, theirs: Tensor) -> tuple[str, str]:
    """Return two numbers with three digits, or as many as tell them apart."""
    a, b = ours.item(), theirs.item()
    if isinstance(a, int | bool):
        return str(a), str(b)
    for digits in range(3, 17):
        texts = f"{a:.{digits}g}", f"{b:.{digits}g}"
        if texts[0] != texts[1]:
            break
    one, other = (x.replace("nan", "NaN") for x in texts)
    return one, other
