"""The verdict of a check, and its wording.

A refusal says, in this order: what was tried, what was returned, what was
expected, the most likely mistake, and the section to reread.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attnbook.exercises.limits import CHARACTERS, SECONDS
from attnbook.exercises.outcome import Case

LIMITS = {"too-long": f"{SECONDS:.0f}", "too-much": f"{CHARACTERS:,}"}
# Names the learner's function where another function or a model is given.
YOURS = "your function"
SHAPES = 150  # characters that say what a case's inputs are, at most

# What can be seen in every exercise, and what it most likely means.
COMMON = {
    "not-a-function": (
        "The check got {what}; it needs the function itself",
        "",
    ),
    "ready-made": (
        "It calls {what}, which computes the whole answer; write the "
        "computation yourself",
        "",
    ),
    "random": (
        "With another seed (`torch.manual_seed`), the same inputs give a "
        "different result; it should be the same",
        "it draws random numbers",
    ),
    "state": (
        "A second call with the same inputs gives a different result; it "
        "should give the same",
        "it keeps state between calls",
    ),
    "none": ("It returns None; expected: {right}", "a `return` is missing"),
    "type": ("It returns {what}; expected: {right}", ""),
    "changed-input": (
        "After the call, its input `{what}` is different; it should stay as it was",
        "an operation works in place",
    ),
    "changed-model": (
        "After the call, the training mode or the parameters of `{what}` are "
        "different; they should stay as they were",
        "",
    ),
    "error": ("It raises {what}; expected: {right}", ""),
    "unfinished": (
        "It raises NotImplementedError here, and not in other cases; expected: {right}",
        "a branch still has to be written",
    ),
    "too-long": (
        "It was stopped after {what} seconds",
        "a loop does not end, or there are many more steps than are needed",
    ),
    "too-much": (
        "It was stopped after {what} printed characters",
        "a loop does not end, or a `print` is left inside one",
    ),
    "never-ran": (
        "It was not run: the time for the whole notebook, {what} seconds, had "
        "run out before",
        "",
    ),
    "shape": (
        "The returned {what} has the shape {seen}; expected: {right}",
        "",
    ),
    "length": (
        "The returned `{what}` has the length {seen}; expected: {right}",
        "",
    ),
    "dtype": (
        "The returned {what} is {seen}; expected: {right}",
        "",
    ),
    "nan": (
        "The returned {what} is NaN; expected: {right}",
        "",
    ),
    "detached": (
        "The values are right, but no gradient reaches `{what}`; expected: "
        "a gradient that is not zero",
        "`detach`, `no_grad`, `.data` or a conversion to Python numbers cuts it off",
    ),
    "gradient": (
        "The values are right, but the gradient of {what} is {pair}",
        "",
    ),
    "numbers": ("The returned {what} is {pair}", ""),
    "hard-coded": (
        "It is right on the first inputs and wrong in every case with new ones: {what}",
        "results of the first inputs are hard-coded",
    ),
}

# What it most likely means if neither a mistake nor a case says more. Another
# type, an error, another shape and other numbers can mean too many things.
OTHERWISE = {
    "changed-model": "`eval()`, `train()` or a change of a parameter is not undone",
    "length": "a loop ends too early or too late",
    "dtype": "a conversion, or a constant of another type, changes the type",
    "nan": "a number overflows, or 0 is divided by 0, or inf is subtracted from inf",
    "gradient": "a part of the computation is detached from the graph, or a "
    "`backward` of your own is wrong",
}


@dataclass(frozen=True)
class Verdict:
    """The verdict of a check: one line, true only when right.

    Attributes:
        mark: `…` not attempted, `✗` wrong, `✓` right.
        message: what follows the mark.
        mistake: the slug of what went wrong, or None.
        remarks: on a right answer, what lies beyond what the exercise asks.
    """

    mark: str
    message: str
    mistake: str | None = None
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        begin = ["One more thing", *["Another"] * len(self.remarks)]
        more = zip(begin, self.remarks, strict=False)
        said = [f"{words}: {x}" for words, x in more]
        if not said:
            return f"{self.mark} {self.message}"
        return f"{self.mark} {join_sentences([self.message, *said])}"

    def __bool__(self) -> bool:
        return self.mark == "✓"


@dataclass(frozen=True)
class Finding:
    """The first thing that is wrong in one call, before it is worded.

    Attributes:
        slug: its name.
        seen: what was returned and what was expected.
        likely: the most likely mistake, if there is one.
        harmless: whether it is beyond what an exercise asks.
        clear: whether it is too large to look like rounding.
    """

    slug: str
    seen: str
    likely: str = ""
    harmless: bool = False
    clear: bool = True


def make_finding(
    slug: str,
    likely: str = "",
    harmless: bool = False,
    clear: bool = True,
    **words,
) -> Finding:
    """Return a common finding with its sentence filled in."""
    seen, usual = COMMON[slug]
    likely = likely or usual
    return Finding(slug, seen.format(**words), likely, harmless, clear)


def make_refusal(
    finding: Finding, tried: str = "", section: str = "", name: str = ""
) -> Verdict:
    """Return the verdict that words a finding.

    Args:
        finding: what is wrong.
        tried: the case in which it is wrong.
        section: to reread.
        name: of the learner's function, where "it" could be misunderstood.
    """
    seen, likely = finding.seen, finding.likely
    likely = likely or OTHERWISE.get(finding.slug, "")
    if name:
        seen, likely = name_function(seen, name), name_function(likely, name)
    parts = [
        f"Tried {tried}" if tried else "",
        seen,
        f"Most likely, {likely}" if likely else "",
        f"Reread the section “{section}”" if section else "",
    ]
    return Verdict("✗", join_sentences(parts), finding.slug)


def make_remark(finding: Finding, case: Case) -> str:
    """Return what a right answer did in a case beyond what is asked."""
    likely = finding.likely or case.likely
    parts = [
        f"{case.tries}, {lower_first(finding.seen)}",
        f"Most likely, {likely}" if likely else "",
    ]
    return join_sentences(parts).removesuffix(".")


def name_function(sentence: str, name: str) -> str:
    """Return a sentence with a name for the pronoun that it begins with."""
    pronoun, space, rest = sentence.partition(" ")
    if pronoun.lower() not in ("it", "its"):
        return sentence
    if pronoun[0].isupper():
        name = name[:1].upper() + name[1:]
    owner = "" if pronoun.lower() == "it" else "'s"
    return f"{name}{owner}{space}{rest}"


def write_seen(finding: Finding, compared: str) -> str:
    """Return what was seen, after what was done to compare numbers."""
    if compared and finding.slug in ("numbers", "nan"):
        return f"{compared}, {lower_first(finding.seen)}"
    return finding.seen


def lower_first(sentence: str) -> str:
    """Return a sentence as it begins after a comma or a colon."""
    return sentence[:1].lower() + sentence[1:]


def join_sentences(parts: Sequence[str]) -> str:
    """Return the parts that are not empty as sentences, each with its end."""
    return " ".join(
        x if x.endswith(("?", ".", "!", "…")) else f"{x}." for x in parts if x
    )


def describe_case(case: Case, names: Sequence[str]) -> str:
    """Return what a case tries, with the names and shapes of its inputs.

    A text that it quotes is not repeated.
    """
    found = [
        words
        for name, x in zip(names, case.inputs, strict=True)
        if not (isinstance(x, str) and f"“{x}”" in case.tries)
        and (words := describe_input(name, x))
    ]
    while len(", ".join(found)) > SHAPES:
        found = [*found[: -2 if found[-1] == "…" else -1], "…"]
    return f"{case.tries}: {', '.join(found)}" if found else case.tries


def describe_input(name: str, x: object) -> str:
    """Return an input's name with its shape or, if it is short, its value."""
    if isinstance(x, Tensor):
        single = x.dtype == torch.float32 or not x.is_floating_point()
        kind = "" if single else f" {str(x.dtype).removeprefix('torch.')}"
        return f"`{name}` {tuple(x.shape)}{kind}"
    if isinstance(x, list | tuple):
        return f"`{name}` of length {len(x)}" if name.endswith("s") else ""
    if isinstance(x, nn.Module) or callable(x) or len(repr(x)) > 20:
        return ""
    if isinstance(x, int) and not isinstance(x, bool):
        return f"`{name}` = {write_integer(x)}"
    return f"`{name}` = {f'{x:g}' if isinstance(x, float) else repr(x)}"


def write_integer(n: int) -> str:
    """Return a whole number, with commas if it has five digits or more."""
    return f"{n:,}" if abs(n) >= 10**4 else str(n)
