"""What a call of a learner's function returned, as data to be compared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnbook.exercises.tolerance import (
    DRAWS,
    FEW,
    compute_tolerance_share,
    differs_certainly,
)

# Makes an answer's tensors so many times more, with random roundings.
Draws = Callable[[int], Sequence[tuple[Tensor, ...]]]


def draw_nothing(count: int) -> tuple:
    """Make no tensors: only what the storing of results costs is allowed."""
    return ()


@dataclass(frozen=True)
class Case:
    """One call of an answer.

    Attributes:
        tries: what it tries, in words.
        inputs: of the call.
        gradient: whether the gradients are compared, too.
        memory_limit: how many bytes of tensors it may hold at once, if that
            counts.
        count_arrays: whether NumPy's arrays and lists count as well, which
            makes the call about three times as long.
        probe: what a model that is returned is called with. Its output is
            compared, and that of the model which the answer was given.
        asked: whether the exercise asks for it in plain words. If not, what
            goes wrong is a remark on a right answer.
        kind: of a derived case, what it varies.
        likely: the most likely mistake if only such cases go wrong.
    """

    tries: str
    inputs: tuple
    gradient: bool = False
    memory_limit: int | None = None
    count_arrays: bool = False
    probe: tuple[Tensor, ...] = ()
    asked: bool = True
    kind: str = ""
    likely: str = ""


@dataclass(frozen=True)
class Outcome:
    """What one call gave.

    Attributes:
        form: what kind of thing was returned, in words.
        output: the returned tensors; numbers and lists of integers become
            tensors too.
        gradients: one for each floating-point input, zero where none arrives.
        floating: the places of these inputs.
        changed: the places of the inputs that the call changed.
        used: the ready-made functions it called though they are not allowed.
        library: this book's functions that it handed all its inputs to.
        stopped: the slug of the limit it ran into, if it was stopped.
        error: what was raised, in one line.
        attempted: False if it raised a stub's NotImplementedError.
    """

    form: str = ""
    output: tuple[Tensor, ...] = ()
    gradients: tuple[Tensor, ...] = ()
    floating: tuple[int, ...] = ()
    changed: tuple[int, ...] = ()
    used: tuple[str, ...] = ()
    library: tuple[str, ...] = ()
    stopped: str = ""
    error: str | None = None
    attempted: bool = True

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The returned tensors, then the gradients."""
        return *self.output, *self.gradients


def take_draws(draws: Draws, nth: int, count: int = DRAWS) -> list[Tensor]:
    """Return the nth tensor of what an answer gives, so many times drawn."""
    return [tensors[nth] for tensors in draws(count)]


def find_differences(
    ours: Tensor,
    right: Tensor,
    draws: Draws = draw_nothing,
    nth: int = 0,
    precision: torch.dtype | None = None,
) -> Tensor:
    """Return True where two tensors of one shape differ beyond rounding.

    Draws take time, so they are made only where more differs than what is
    lost when results are stored.

    Args:
        ours: the one.
        right: the other, which the tolerance is for.
        draws: what the other's answer gives with random roundings.
        nth: which of its tensors this is.
        precision: in which results are stored, if not in the right one's.
    """
    beyond = compute_tolerance_share(ours, right, (), precision) > 1
    if right.is_floating_point() and beyond.any():
        drawn = take_draws(draws, nth)
        beyond = compute_tolerance_share(ours, right, drawn, precision) > 1
    return beyond


def is_equal(
    ours: Tensor, right: Tensor, draws: Draws = draw_nothing, nth: int = 0
) -> bool:
    """Tell whether two tensors of one shape and type agree up to rounding.

    All draws are made only where a few of them leave a doubt.
    """
    if torch.equal(ours, right):
        return True
    if not (compute_tolerance_share(ours, right) > 1).any():
        return True
    if not right.is_floating_point():
        return False
    few = take_draws(draws, nth, FEW)
    if differs_certainly(ours, right, few).any():
        return False
    drawn = take_draws(draws, nth)
    return not (compute_tolerance_share(ours, right, drawn) > 1).any()


def are_equal(
    ours: tuple[Tensor, ...],
    right: tuple[Tensor, ...],
    draws: Draws = draw_nothing,
) -> bool:
    """Tell whether tensors agree in number, shape, type and value."""
    return len(ours) == len(right) and all(
        a.shape == b.shape and a.dtype == b.dtype and is_equal(a, b, draws, nth)
        for nth, (a, b) in enumerate(zip(ours, right, strict=True))
    )


def is_same_outcome(ours: Outcome, right: Outcome, draws: Draws = draw_nothing) -> bool:
    """Tell whether two functions did the same in one call.

    Args:
        ours: what the one did.
        right: what the other did.
        draws: what the other does with random roundings.
    """
    if ours.stopped or right.stopped:
        return ours.stopped == right.stopped
    if ours.error or right.error:
        return read_error_type(ours.error) == read_error_type(right.error)
    return (
        ours.form == right.form
        and ours.changed == right.changed
        and are_equal(ours.tensors, right.tensors, draws)
    )


def read_like(got: Outcome, want: Outcome) -> Outcome:
    """Return an outcome whose numbers are held as the right ones are.

    A number may be a tensor or an array with one entry, and a list of integers
    a tensor, an array, or a list of 0-dimensional tensors.
    """
    given = got.output
    if got.form == want.form or not given:
        return got
    alone = got.form in ("a tensor", "an object of type ndarray")
    if want.form == "a number" and alone and is_numeric(given[0]):
        if given[0].numel() != 1:
            return got
        number = given[0].reshape(()).to(want.output[0].dtype)
        return replace(got, form=want.form, output=(number,), gradients=want.gradients)
    if want.form == "a list of integers" and got.form != "a number":
        if not alone and all(x.dim() == 0 and is_numeric(x) for x in given):
            floating = any(x.is_floating_point() for x in given)
            kind = torch.float64 if floating else torch.int64
            given = (torch.stack([x.to(kind) for x in given]),)
        if len(given) == 1 and given[0].dim() == 1 and is_numeric(given[0]):
            listed = read_integers(given[0])
            return replace(
                got, form=want.form, output=(listed,), gradients=want.gradients
            )
    return got


def cover_nan(got: Outcome, want: Outcome) -> Outcome:
    """Return an outcome whose entries count only where none is expected NaN."""
    covered = [
        torch.where(right.isnan(), right, ours)
        if ours.shape == right.shape and ours.dtype == right.dtype
        else ours
        for ours, right in zip(got.output, want.output, strict=False)
    ]
    return replace(got, output=(*covered, *got.output[len(covered) :]))


def is_numeric(x: Tensor) -> bool:
    """Tell whether a tensor holds real numbers, not truth values."""
    return not (x.is_complex() or x.dtype == torch.bool)


def read_integers(x: Tensor) -> Tensor:
    """Return whole numbers as integers, and others in double precision."""
    wide = x.double()
    whole = (wide == wide.round()) & wide.isfinite()
    return x.long() if not x.is_floating_point() or whole.all() else wide


def read_error_type(error: str | None) -> str | None:
    """Return the type's name at the front of an outcome's error."""
    return error and error.partition(":")[0]
