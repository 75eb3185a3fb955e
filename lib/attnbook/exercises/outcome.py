"""What a call of a learner's function returned, as data to be compared."""

from dataclasses import dataclass

import torch
from torch import Tensor

# How far a right answer may lie from ours, for the order of operations is free:
# relative to the number itself, and to the largest of its tensor (a sum whose
# terms nearly cancel keeps the rounding of its terms).
ROUNDING = {
    torch.float64: (1e-9, 1e-12),
    torch.float32: (1e-4, 5e-6),
    torch.float16: (1e-2, 5e-3),
    torch.bfloat16: (5e-2, 4e-2),
}


@dataclass(frozen=True)
class Case:
    """One call: what it tries, in words, its inputs, and whether to go back.

    `room` is how many bytes of tensors it may hold at once, if that counts.
    """

    tries: str
    inputs: tuple
    gradient: bool = False
    room: int | None = None


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


def differing(ours: Tensor, theirs: Tensor) -> Tensor:
    """Return True where two tensors of one shape differ beyond rounding."""
    relative, absolute = ROUNDING.get(theirs.dtype, (0.0, 0.0))
    if theirs.is_complex():  # no exercise asks for one
        return ours != theirs
    ours, theirs = ours.double(), theirs.double()
    finite = theirs[theirs.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    slack = relative * theirs.abs() + absolute * max(largest, 1.0)
    near = theirs.isfinite() & ((ours - theirs).abs() <= slack)
    return ~(near | (ours == theirs) | (ours.isnan() & theirs.isnan()))


def equal(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> bool:
    """Tell whether tensors agree in number, shape, type and value."""
    return len(ours) == len(theirs) and all(
        a.shape == b.shape
        and a.dtype == b.dtype
        and (torch.equal(a, b) or not bool(differing(a, b).any()))
        for a, b in zip(ours, theirs, strict=True)
    )


def alike(ours: Outcome, theirs: Outcome) -> bool:
    """Tell whether two functions did the same in one call."""
    if ours.stopped or theirs.stopped:
        return ours.stopped == theirs.stopped
    if ours.error or theirs.error:
        return kind(ours.error) == kind(theirs.error)
    return (
        ours.form == theirs.form
        and ours.changed == theirs.changed
        and equal(ours.output, theirs.output)
        and equal(ours.gradients, theirs.gradients)
    )


def kind(error: str | None) -> str | None:
    """Return the type's name at the front of an outcome's error."""
    return error and error.partition(":")[0]
