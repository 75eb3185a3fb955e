"""The first difference between what an answer gave and what is right."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.exercises.old_verdict import Finding, make_finding, write_integer
from attnbook.exercises.outcome import (
    Draws,
    Outcome,
    draw_nothing,
    find_differences,
    take_draws,
)
from attnbook.exercises.tolerance import (
    FEW,
    compute_tolerance,
    compute_tolerance_share,
    differs_certainly,
)

ALIKE = 0.02  # two numbers whose distance is a smaller share look alike
CLEAR = 10.0  # tolerances; a smaller difference looks like rounding
SINGLE = torch.float32
HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Roundings:
    """What the solution gives with random roundings, in one case.

    Attributes:
        own: in the precision of its result.
        single: in single precision, whatever its result's is.
    """

    own: Draws = draw_nothing
    single: Draws = draw_nothing


def find_difference(
    got: Outcome,
    want: Outcome,
    takes: Sequence[str],
    returns: Sequence[str],
    roundings: Roundings | None = None,
) -> Finding | None:
    """Return the first thing that is wrong with an outcome, or None.

    What is wrong comes before what is harmless.

    Args:
        got: what the attempt did.
        want: what the solution did.
        takes: the names of the inputs.
        returns: the names of the outputs.
        roundings: what the solution does with random roundings.
    """
    right = write_form(want, returns)
    if not got.attempted:
        return make_finding("unfinished", right=right)
    if got.form == "None":
        return make_finding("none", right=right)
    if got.changed:
        what = takes[got.changed[0]]
        kind = "model" if what == "model" else "input"
        return make_finding(f"changed-{kind}", what=what)
    if got.error:
        return make_finding("error", what=got.error, right=right)
    if got.form != want.form:
        return make_finding("type", what=got.form, right=right)
    if "list" in want.form and len(got.output[0]) != len(want.output[0]):
        seen, expected = (len(x.output[0]) for x in (got, want))
        return make_finding("length", what=returns[0], seen=seen, right=expected)
    roundings = roundings or Roundings()
    found = [
        compare_tensors(name, got.output[i], want.output[i], roundings, i)
        for i, name in enumerate(returns)
    ]
    found += compare_gradients(got, want, takes, roundings)
    kept = [x for x in found if x is not None]
    return next((x for x in kept if not x.harmless), next(iter(kept), None))


def write_form(want: Outcome, returns: Sequence[str]) -> str:
    """Return what is expected, in words."""
    shapes = [str(tuple(x.shape)) for x in want.output]
    if want.form == "a tensor":
        return f"a tensor of shape {shapes[0]}"
    if want.form.endswith("tensors"):
        named = zip(returns, shapes, strict=True)
        listed = ", ".join(f"`{name}` {shape}" for name, shape in named)
        return f"{want.form}, {listed}"
    return want.form


def compare_tensors(
    name: str, ours: Tensor, theirs: Tensor, roundings: Roundings, nth: int
) -> Finding | None:
    """Compare one returned tensor, the nth, with the right one."""
    if ours.shape != theirs.shape:
        seen, right = (str(tuple(x.shape)) for x in (ours, theirs))
        likely = explain_shape(tuple(ours.shape), tuple(theirs.shape))
        return make_finding("shape", likely, what=f"`{name}`", seen=seen, right=right)
    if ours.dtype != theirs.dtype:
        return compare_types(name, ours, theirs, roundings, nth)
    empty = ours.isnan() & ~theirs.isnan()
    if empty.any():
        where = find_first(empty)
        right = write_number(theirs[where].item())
        return make_finding("nan", what=write_entry(name, where), right=right)
    if found := describe_difference(ours, theirs, roundings, nth):
        where, pair, harmless, clear = found
        words = {"what": write_entry(name, where), "pair": pair}
        likely = IN_SINGLE * harmless
        return make_finding("numbers", likely, harmless, clear, **words)
    return None


IN_SINGLE = "an intermediate result is in single precision"


def explain_shape(ours: tuple[int, ...], theirs: tuple[int, ...]) -> str:
    """Return what most likely made a shape another one, or nothing."""
    if sorted(ours) == sorted(theirs):
        moved = sum(a != b for a, b in zip(ours, theirs, strict=True))
        few = "two axes are swapped"
        return few if moved == 2 else "the axes are in the wrong order"
    extra = len(ours) > len(theirs)
    longer, shorter = (ours, theirs) if extra else (theirs, ours)
    sizes = [
        size for i, size in enumerate(longer) if longer[:i] + longer[i + 1 :] == shorter
    ]
    if [n for n in ours if n != 1] == [n for n in theirs if n != 1]:
        sizes = [1]
    if not sizes:
        return ""
    axis = f"axis of size {sizes[0]}"
    return f"there is an extra {axis}" if extra else f"an {axis} is missing"


def compare_types(
    name: str, ours: Tensor, theirs: Tensor, roundings: Roundings, nth: int
) -> Finding | None:
    """Compare tensors of different types: the type, then perhaps the numbers.

    A list of numbers that are not whole is compared with the integers. A result
    in single precision is harmless where its numbers are right.
    """
    counted = theirs.dtype == torch.int64 and ours.dtype == torch.float64
    if counted and (ours != ours.round()).any():
        wide = theirs.double()
        return compare_tensors(name, ours, wide, Roundings(), nth)
    harmless = False
    if ours.dtype == SINGLE and theirs.dtype == torch.float64:
        beyond = find_differences(ours.double(), theirs, roundings.single, nth, SINGLE)
        harmless = not beyond.any()
    if ours.dtype == SINGLE and theirs.dtype in HALVES:
        beyond = find_differences(ours, theirs, roundings.own, nth)
        harmless = not beyond.any()
    seen, right = (str(x.dtype).removeprefix("torch.") for x in (ours, theirs))
    return make_finding(
        "dtype",
        harmless=harmless,
        what=f"`{name}`",
        seen=seen,
        right=right,
    )


def compare_gradients(
    got: Outcome, want: Outcome, takes: Sequence[str], roundings: Roundings
) -> list[Finding]:
    """Compare the gradients of the floating-point inputs."""
    findings = []
    for nth, (i, ours, theirs) in enumerate(
        zip(want.floating, got.gradients, want.gradients, strict=True),
        start=len(want.output),
    ):
        if not (found := describe_difference(ours, theirs, roundings, nth)):
            continue
        where, pair, harmless, clear = found
        if not ours.any():
            findings.append(make_finding("detached", what=takes[i]))
            continue
        words = {"what": write_entry(takes[i], where), "pair": pair}
        likely = IN_SINGLE * harmless
        findings.append(make_finding("gradient", likely, harmless, clear, **words))
    return findings


def describe_difference(
    ours: Tensor, theirs: Tensor, roundings: Roundings, nth: int
) -> tuple[tuple[int, ...], str, bool, bool] | None:
    """Return where two tensors differ most clearly, and how.

    Then whether that is harmless, and whether it is clear. In double precision,
    a difference that single precision explains is harmless.
    """
    if torch.equal(ours, theirs):
        return None
    if (certain := find_certain(ours, theirs, roundings, nth)) is not None:
        pair = write_pair(ours[certain].item(), theirs[certain].item())
        return certain, pair, False, True
    wrong = find_differences(ours, theirs, roundings.own, nth)
    if not wrong.any():
        return None
    harmless = False
    if theirs.dtype == torch.float64 and roundings.single is not draw_nothing:
        coarse = find_differences(ours, theirs, roundings.single, nth, SINGLE)
        harmless = not coarse.any()
        wrong = wrong if harmless else coarse
    floating = theirs.is_floating_point()
    drawn = take_draws(roundings.own, nth) if floating else []
    share = compute_tolerance_share(ours, theirs, drawn)
    where = find_clear(wrong, share)
    allowed = compute_tolerance(theirs, drawn)[where].item()
    pair = write_pair(ours[where].item(), theirs[where].item(), allowed)
    return where, pair, harmless, bool(share[where] >= CLEAR)


def find_certain(
    ours: Tensor, theirs: Tensor, roundings: Roundings, nth: int
) -> tuple[int, ...] | None:
    """Return the index of the first difference if a few draws make it certain.

    The two numbers there do not look alike, either. It is then the index that
    all draws would give.
    """
    if not theirs.is_floating_point():
        return None
    kinds: list[tuple[Draws, torch.dtype | None]] = [(roundings.own, None)]
    if theirs.dtype == torch.float64 and roundings.single is not draw_nothing:
        kinds.append((roundings.single, SINGLE))
    beyond = compute_tolerance_share(ours, theirs, (), kinds[-1][1]) > 1
    if not beyond.any():
        return None
    first = find_first(beyond)
    away = abs(ours[first].item() - theirs[first].item())
    if not away > ALIKE * abs(theirs[first].item()):
        return None
    certain = all(
        differs_certainly(ours, theirs, take_draws(f, nth, FEW), x)[first]
        for f, x in kinds
    )
    return first if certain else None


def find_clear(wrong: Tensor, share: Tensor) -> tuple[int, ...]:
    """Return the index of the first wrong entry if it differs clearly.

    If not, that of the clearest: to the reader, a difference of a few
    tolerances looks like rounding.

    Args:
        wrong: True where an entry is wrong.
        share: each difference as a multiple of the tolerance.
    """
    first = find_first(wrong)
    if share[first] >= CLEAR:
        return first
    return find_first(wrong & (share == share[wrong].max()))


def find_first(where: Tensor) -> tuple[int, ...]:
    """Return the index of the first True."""
    return tuple(torch.nonzero(where)[0].tolist())


def write_entry(name: str, where: tuple[int, ...]) -> str:
    """Return how an entry is written: `weights[0, 2]`."""
    return f"`{name}[{', '.join(map(str, where))}]`" if where else f"`{name}`"


def write_pair(ours: int | float, right: int | float, allowed: float = 0.0) -> str:
    """Return what a number is and what is expected.

    Numbers that look alike are not shown side by side: their difference is, and
    the tolerance.
    """
    if isinstance(ours, bool):
        return f"{ours}; expected: {right}"
    away = abs(ours - right)
    plain = abs(right) < 100 and away >= 1  # integers with a digit or two
    if plain or away == float("inf") or not away <= ALIKE * abs(right):
        return f"{write_number(ours)}; expected: {write_number(right)}"
    side = "smaller" if ours > right else "larger"
    more = f" (the tolerance is {allowed:.0e})" if allowed else ""
    return (
        f"{write_number(ours)}; expected: a number {side} by "
        f"{write_number(away, digits=2)}{more}"
    )


def write_number(x: int | float, digits: int = 3) -> str:
    """Return a number in short: integers whole, others with a few digits."""
    if isinstance(x, bool | int):
        return str(x) if isinstance(x, bool) else write_integer(x)
    return f"{x:.{digits}g}".replace("nan", "NaN")
