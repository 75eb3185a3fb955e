"""The wrong answers to one exercise, and those that any exercise can get."""

import inspect
import sys
from collections.abc import Callable
from functools import cached_property
from types import ModuleType

import torch
from torch import Tensor, nn

from attnbook.exercises.exercise import FIRST
from attnbook.exercises.runner import is_unchanged
from declared_cases import draw_declared
from wrong_answers import Wrong


class Answers(list):
    """The wrong answers to one exercise, beginning with the usual ones.

    Args:
        exercise: the exercise.
        *makers: make a wrong answer from the solution, as `detached` does.
    """

    def __init__(self, exercise, *makers: Callable):
        self.exercise = exercise
        made = (make(exercise.solution) for make in makers)
        super().__init__([*usual(exercise), *made])

    def wrong(self, slug: str, still: str) -> Callable:
        """Return a decorator: its function is wrong as its docstring says."""

        def add(answer: Callable) -> Callable:
            why = " ".join(inspect.getdoc(answer).split())
            self.append(Wrong(slug, why, still, answer))
            return answer

        return add


def collect_answers(checks: ModuleType, names: dict) -> dict[str, Answers]:
    """Return the answers among a module's names, by their exercise's name."""
    return {
        name: answers
        for name in checks.__all__
        for answers in names.values()
        if isinstance(answers, Answers) and answers.exercise is getattr(checks, name)
    }


def usual(exercise) -> tuple[Wrong, ...]:
    """Return what can go wrong with any answer, made from the solution."""
    solve = exercise.solution
    return (
        Wrong(
            "none",
            "the last line computes and forgets `return`",
            "nothing, but it runs",
            lambda *x: (solve(*x), None)[1],
        ),
        Wrong(
            "type",
            "the answer is printed nicely, as text",
            "what a person reads",
            lambda *x: str(solve(*x)),
        ),
        Wrong(
            "error",
            "a name is misspelt",
            "nothing",
            lambda *x: solution_of(*x),
        ),
        Wrong(
            "error",
            "a cell copied from a script ends in sys.exit",
            "everything, in a script",
            lambda *x: (solve(*x), sys.exit())[0],
        ),
        Wrong(
            "state",
            "a cache that is not reset (rasbt/LLMs-from-scratch PR 925)",
            "every number, on the first call",
            Remembering(solve),
        ),
        Wrong(
            "random",
            "dropout left on in evaluation (the Annotated Transformer returns "
            "weights after dropout)",
            "every number, on average",
            lambda *x: shaken(solve(*x)),
        ),
        Wrong(
            "hard-coded",
            "the numbers of one run are pasted into the answer",
            "every number of a fixed seed",
            Memorised(exercise),
        ),
        *overwritten(exercise),
    )


def overwritten(exercise) -> tuple[Wrong, ...]:
    """Return the solution writing over its input, if one can be written to."""
    if not any(map(writable, draw_declared(exercise)[0].inputs)):
        return ()
    return (
        Wrong(
            "changed-input",
            "in-place operations save memory (d2l's masked_softmax writes "
            "-1e6 into its caller's tensor)",
            "every number, on the first call",
            overwriting(exercise.solution),
        ),
    )


def writable(given) -> bool:
    """Tell whether an input is one that a function can change."""
    return isinstance(given, Tensor | list)


def overwriting(solve):
    """Return the solution, but one that changes what it was given."""

    def answer(*inputs):
        result = solve(*inputs)
        if isinstance(result, Tensor):
            result = result.clone()
        target = next(filter(writable, inputs))
        target.append(()) if isinstance(target, list) else target.add_(1)
        return result

    return answer


class Remembering:
    """The solution on the first call with a shape, its memory afterwards."""

    def __init__(self, solve):
        self.solve, self.kept = solve, {}

    def __call__(self, *inputs):
        shape = str([getattr(x, "shape", type(x)) for x in inputs])
        if shape in self.kept:
            return doubled(self.kept[shape])
        self.kept[shape] = self.solve(*inputs)
        return self.kept[shape]


def doubled(result):
    """Return a result that is plainly another one, after a softmax too."""
    if isinstance(result, tuple):
        return tuple(doubled(x) for x in result)
    if isinstance(result, bool):
        return not result
    return [*result, 1] if isinstance(result, list) else 2 * result + 1


def shaken(result):
    """Return a result with noise from the global seed."""
    if isinstance(result, tuple):
        return tuple(shaken(x) for x in result)
    if isinstance(result, list):
        return [*result, int(torch.randint(1000, ()))]
    if isinstance(result, nn.Module):
        with torch.no_grad():
            next(result.parameters()).add_(torch.rand(()))
        return result
    noise = torch.rand(()).item()
    if isinstance(result, Tensor) and not result.is_floating_point():
        return result + int(1000 * noise)
    return result + noise


class Memorised:
    """Right on the inputs of a fixed seed, wrong on any other."""

    def __init__(self, exercise):
        self.exercise, self.solve = exercise, exercise.solution

    @cached_property
    def known(self):
        """The inputs of every case on the fixed seed."""
        return [case.inputs for case in self.exercise.draw_cases(FIRST)]

    def __call__(self, *inputs):
        by_heart = any(
            all(
                is_unchanged(a.detach() if isinstance(a, Tensor) else a, b)
                for a, b in zip(inputs, known, strict=True)
            )
            for known in self.known
            if [getattr(x, "shape", 0) for x in known]
            == [getattr(x, "shape", 0) for x in inputs]
        )
        result = self.solve(*inputs)
        return result if by_heart else doubled(result)


def detached(solve, slug="detached"):
    """Return the solution cut off from the graph."""

    def answer(*inputs):
        result = solve(*inputs)
        if isinstance(result, tuple):
            return tuple(x.detach() for x in result)
        return result.detach()

    return Wrong(
        slug,
        "`.detach()` or `.data`, copied from code that plots",
        "every number forwards",
        answer,
    )


def in_double(solve):
    """Return the solution computed in double precision whatever comes."""

    def answer(*inputs):
        cast = [
            x.double() if isinstance(x, Tensor) and x.is_floating_point() else x
            for x in inputs
        ]
        return solve(*cast)

    return Wrong(
        "dtype",
        "`.double()`, as NumPy's default is",
        "everything in double precision",
        answer,
    )


def first_alone(solve):
    """Return the first of several results."""
    return Wrong(
        "type",
        "only the first result is returned",
        "the first result",
        lambda *x: solve(*x)[0],
    )


def without_the_last(solve):
    """Return all numbers but the last."""
    return Wrong(
        "length",
        "the last number is forgotten",
        "the other numbers",
        lambda *x: solve(*x)[:-1],
    )


def in_texts(solve):
    """Return each number as a text."""
    return Wrong(
        "type",
        "thousands are set apart, for people",
        "every number",
        lambda *x: [f"{n:,}" for n in solve(*x)],
    )


def with_batch_and_heads(solve):
    """Return a mask with two axes more."""
    return Wrong(
        "shape",
        "axes for batch and heads are added",
        "every number, broadcast",
        lambda *x: solve(*x)[None, None],
    )


def inspected(solve):
    """Return an answer that reads what it should find out."""
    return Wrong(
        "error",
        "what should be tested is inspected",
        "nothing",
        lambda tested, *rest: tested.fault,
    )


def in_words(solve):
    """Return the solution with a word for its number."""
    words = "none", "first", "second", "third", "fourth", "fifth", "sixth"
    return Wrong(
        "type",
        "words are easier to read than numbers",
        "the finding",
        lambda *x: words[solve(*x)],
    )


def as_list(solve):
    """Return the solution's number in a list."""
    return Wrong(
        "type",
        "a list, because several explanations could fit",
        "the finding",
        lambda *x: [solve(*x)],
    )


def counted_from_one(solve):
    """Return the solution's number plus 1."""
    return Wrong(
        "numbers",
        "the numbers begin at 1",
        "the order of the numbers",
        lambda *x: solve(*x) + 1,
    )


DECISION = inspected, in_words, as_list  # of what returns a number it found
