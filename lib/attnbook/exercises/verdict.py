"""The verdict of a check: its mark, its line, and the name of what went wrong.

A refusal says, in this order: what was tried, what was returned and expected,
the most likely mistake, and the section to reread.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnbook.exercises.limits import CHARACTERS, SECONDS

# What can go wrong in every exercise: what was seen, and what it most likely
# means. Teachers count these names, so they stay as they are.
SEEN = {
    "not-a-function": ("the check got {got}; it needs the function itself", ""),
    "ready-made": (
        "it calls {got}, which computes the answer; write the computation yourself",
        "",
    ),
    "too-long": (
        f"it was stopped after {SECONDS:.0f} seconds",
        "a loop does not end, or there are many more steps than are needed",
    ),
    "too-much": (
        f"it was stopped after {CHARACTERS:,} printed characters",
        "a loop does not end, or a `print` is left inside one",
    ),
    "random": (
        "with another seed (`torch.manual_seed`), equal inputs give another result",
        "it draws random numbers",
    ),
    "state": (
        "a second call with equal inputs gives another result",
        "it keeps state between calls",
    ),
    "unfinished": (
        "it raises NotImplementedError here, and not in other cases; expected: {want}",
        "a branch still has to be written",
    ),
    "none": ("it returns None; expected: {want}", "a `return` is missing"),
    "type": ("it returns {got}; expected: {want}", ""),
    "error": ("it raises {got}; expected: {want}", ""),
    "changed-input": (
        "the call changes its input {got}; it should stay as it was",
        "an operation works in place",
    ),
    "changed-model": (
        "the call changes the training mode or the parameters of {got}",
        "`eval()`, `train()` or a change of a parameter is not undone",
    ),
    "length": (
        "the returned {what} has the length {got}; expected: {want}",
        "a loop ends too early or too late",
    ),
    "shape": ("the returned {what} has the shape {got}; expected: {want}", ""),
    "dtype": (
        "the returned {what} is {got}; expected: {want}",
        "a conversion, or a constant of another type, changes the type",
    ),
    "nan": (
        "the returned {what} is NaN; expected: {want}",
        "a number overflows, or 0 is divided by 0, or inf is subtracted from inf",
    ),
    "numbers": ("the returned {what} is {got}; expected: {want}", ""),
    "detached": (
        "the values are right, but no gradient reaches {what}; expected: a gradient "
        "that is not zero",
        "`detach`, `no_grad`, `.data` or a conversion to Python numbers cuts it off",
    ),
    "gradient": (
        "the values are right, but the gradient of {what} is {got}; expected: {want}",
        "a part of it is detached from the graph, or a `backward` is wrong",
    ),
    "hard-coded": (
        "it is right on the first inputs and wrong on all new ones: {got}",
        "results of the first inputs are hard-coded",
    ),
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


RIGHT = Verdict("✓", "right")
NOT_YET = Verdict("…", "not attempted yet")


@dataclass(frozen=True)
class Finding:
    """What is wrong in a call: its slug, what was seen, what it likely means."""

    slug: str
    seen: str
    likely: str = ""


def make_finding(slug: str, **words: str) -> Finding:
    """Return a finding that can occur in every exercise."""
    seen, likely = SEEN[slug]
    return Finding(slug, seen.format(**words), likely)


def refuse(finding: Finding, tried: str = "", section: str = "") -> Verdict:
    """Return the verdict that words a finding, in sentences."""
    parts = (
        tried and f"tried {tried}",
        finding.seen,
        finding.likely and f"most likely, {finding.likely}",
        section and f"reread the section “{section}”",
    )
    sentences = [x[0].upper() + x[1:] for x in parts if x]
    message = " ".join(x if x[-1] in ".?!…" else f"{x}." for x in sentences)
    return Verdict("✗", message, finding.slug)


def describe_input(name: str, x: object) -> str:
    """Return an input's name with its shape or, if it is short, its value."""
    if isinstance(x, Tensor):
        usual = x.dtype == torch.float32 or not x.is_floating_point()
        return f"`{name}` {tuple(x.shape)}" + ("" if usual else f" {name_type(x)}")
    if isinstance(x, list | tuple):
        return f"`{name}` of length {len(x)}"
    if callable(x) or len(repr(x)) > 20:
        return ""
    return f"`{name}` = {x!r}"


def name_type(x: Tensor) -> str:
    """Return the name of a tensor's type, such as float16."""
    return str(x.dtype).removeprefix("torch.")


def write_number(x: bool | int | float) -> str:
    """Return a number with all digits if it is whole, and six if not."""
    if isinstance(x, bool):
        return str(x)
    return f"{x:,.0f}" if abs(x) < 1e15 and x == int(x) else f"{x:.6g}"
