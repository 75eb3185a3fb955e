"""Wrong answers by kind, made from right ones.

Each kind is something that a derived case varies: an answer that is right on
the sizes and layouts that its author had in mind, and wrong on others.
`make kinds` prints, for each exercise and kind, how many are refused without
the derived cases and with them.
"""

import importlib
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from attnbook.exercises.derived_cases import (
    LIKELY,
    is_plain,
    read_axes,
    returns_tensors,
)
from attnbook.exercises.exercise import FIRST, Exercise
from attnbook.exercises.named_axes import Axes, Inputs

TABLE = 128  # positions that fit into a table


def change_output(answer: Callable, change: Callable) -> Callable:
    """Return an answer whose tensors are changed."""

    def mutant(*given):
        found = answer(*given)
        if isinstance(found, Tensor):
            return change(found)
        return tuple(map(change, found))

    return mutant


def change_inputs(answer: Callable, axes: Axes, change: Callable) -> Callable:
    """Return an answer that gets other inputs."""

    def mutant(*given):
        named = Inputs(axes, dict(zip(axes, given, strict=False)))
        return answer(*change(named).given.values())

    return mutant


def clear_beyond(axis: str, most: int) -> Callable[[Inputs], Inputs]:
    """Return a change that puts zeros where an axis is longer than a table."""

    def change(given: Inputs) -> Inputs:
        def clear(name: str, x: Tensor) -> Tensor:
            for place in given.find_places(name, axis):
                far = torch.arange(x.shape[place]) >= most
                x = x.index_fill(place, far.nonzero()[:, 0], 0)
            return x

        return given.change(clear)

    return change


def clamp_size(axis: str, most: int) -> Callable[[Inputs], Inputs]:
    """Return a change that takes a larger size for the largest one."""
    return lambda given: given.replace(**{axis: min(given.given[axis], most)})


def read_row_by_row(name: str, x: Tensor) -> Tensor:
    """Read memory as if it were in the usual order."""
    steps = torch.empty(x.shape, device="meta").stride()
    needs = 1 + sum((n - 1) * k for n, k in zip(x.shape, steps, strict=True))
    stored = x.untyped_storage().nbytes() // x.element_size()
    if x.numel() == 0 or needs + x.storage_offset() > stored:
        return x
    return x.as_strided(x.shape, steps)


def require_axes(counts: set[int], which: str):
    """Return a change that refuses other numbers of axes."""

    def change(given: Inputs) -> Inputs:
        x = given.given[which]
        if isinstance(x, Tensor) and x.dim() not in counts:
            raise IndexError(f"{x.dim()} axes")
        return given

    return change


def align_mask(given: Inputs) -> Inputs:
    """Add the axes that a mask lacks at its end."""
    mask = given.given["mask"]
    if not isinstance(mask, Tensor) or mask.dim() > 1:
        return given
    return given.replace(mask=mask[:, None])


def end_at_padding(name: str) -> Callable[[Inputs], Inputs]:
    """Return a change that takes what follows padding for padding."""

    def change(given: Inputs) -> Inputs:
        x, pad = given.given[name], given.given["pad"]
        ended = (x == pad).cumsum(-1) > 0
        return given.replace(**{name: x.masked_fill(ended, pad)})

    return change


def spread(answer: Callable) -> Callable:
    """Add nothing, times the sum of all inputs."""

    def mutant(*given):
        floats = [x for x in given if isinstance(x, Tensor) and x.is_floating_point()]
        nothing = sum(x.sum() for x in floats) * 0
        return change_output(
            answer, lambda x: x + nothing if x.is_floating_point() else x
        )(*given)

    return mutant


def list_mutants(
    exercise: Exercise, answer: Callable
) -> Iterator[tuple[str, str, Callable]]:
    """Yield kind, words and answer of each wrong answer from a right one."""
    axes = read_axes(exercise.solution)
    cases = [c for c in exercise.draw_cases(FIRST) if not c.kind]
    kinds = {c.kind for c in exercise.draw_cases(FIRST)}
    usual = cases[0]
    plain = is_plain(tuple(axes), usual) if len(usual.inputs) == len(axes) else 0
    if "limit" in axes:
        yield (
            "limit",
            "one symbol at least",
            change_inputs(
                answer,
                axes,
                lambda x: x.replace(limit=max(1, x.given["limit"])),
            ),
        )
    if not (plain and returns_tensors(exercise.solution)):
        return
    given = Inputs(axes, dict(zip(axes, usual.inputs, strict=True)))
    tensors = [n for n, x in given.given.items() if isinstance(x, Tensor)]
    batched = "batch" in kinds
    shown = str(inspect.signature(exercise.solution).return_annotation)
    if batched and "'B" in shown:
        yield (
            "batch",
            "an axis of size 1 is removed",
            change_output(answer, lambda x: x.squeeze(0) if x.dim() > 1 else x),
        )
    if batched:
        most = max(
            Inputs(axes, dict(zip(axes, c.inputs, strict=False))).get_size("B")
            for c in cases
        )
        yield (
            "batch",
            f"{most} sequences at most",
            change_inputs(answer, axes, clear_beyond("B", most)),
        )
    for axis in ("T", "S", "length", "queries", "keys"):
        if "long" in kinds and given.has_axis(axis):
            cut = clamp_size if axis in given.given else clear_beyond
            yield (
                "long",
                f"a table of {TABLE} for {axis}",
                change_inputs(answer, axes, cut(axis, TABLE)),
            )
    if "axes" in kinds:
        name = next(n for n in tensors if axes[n][:1] == ("*B",))
        place = list(axes).index(name)
        counts = {c.inputs[place].dim() for c in cases}
        yield (
            "axes",
            f"{sorted(counts)} axes only",
            change_inputs(answer, axes, require_axes(counts, name)),
        )
    if "layout" in kinds:
        yield (
            "layout",
            "memory read row by row",
            change_inputs(answer, axes, lambda x: x.change(read_row_by_row)),
        )
    if "mask" in kinds:
        yield (
            "mask",
            "missing axes added at the end",
            change_inputs(answer, axes, align_mask),
        )
        yield (
            "mask",
            "two axes at least",
            change_inputs(answer, axes, require_axes({2, 3, 4, 5}, "mask")),
        )
    if "padding" in kinds:
        name = next(n for n in tensors if axes[n] == ("B", "T"))
        yield (
            "padding",
            "nothing follows padding",
            change_inputs(answer, axes, end_at_padding(name)),
        )
    if "heads" in kinds and "heads" in given.given:
        few = {c.inputs[list(axes).index("heads")] for c in cases}
        yield (
            "heads",
            f"{max(few)} heads at most",
            change_inputs(answer, axes, clamp_size("heads", max(few))),
        )
    if "nan" in kinds:
        yield "nan", "NaN spreads to all sequences", spread(answer)


def count_refused(
    exercise: Exercise, answers: list[Callable]
) -> Iterator[tuple[str, str, str, str]]:
    """Yield kind, words and outcome without and with the derived cases."""
    plain = replace(exercise, draw=exercise.draw.draw, without=frozenset(LIKELY))
    for answer in answers:
        for kind, words, mutant in list_mutants(exercise, answer):
            found = [
                describe(x.judge(x.run_attempt(mutant, (FIRST,)), own=False))
                for x in (plain, exercise)
            ]
            yield kind, words, found[0], found[1]


def describe(verdict) -> str:
    """Return how an answer was judged."""
    if not verdict:
        return "refused"
    return "right with a remark" if verdict.remarks else "right"


def main() -> None:
    """Print the counts by kind and exercise."""
    from workshop.book.mistakes import list_entries

    sys.path.insert(0, "tests")
    total: Counter = Counter()
    for entry in list_entries():
        if sys.argv[1:] and entry.name not in sys.argv[1:]:
            continue
        bank = importlib.import_module(f"right_answers.{entry.module}")
        answers = [entry.exercise.solution]
        answers += [answer for _, answer in bank.ANSWERS[entry.name]]
        for kind, words, before, after in count_refused(entry.exercise, answers):
            total[entry.name, kind, "all"] += 1
            total[entry.name, kind, f"before {before}"] += 1
            total[entry.name, kind, f"after {after}"] += 1
            if after == "right":
                print(f"accepted: {entry.module}.{entry.name}: {words}")
    outcomes = ("refused", "right with a remark", "right")
    print("exercise, kind: mutants; refused, remarked, right before; after")
    names = sorted({key[:2] for key in total})
    for name, kind in names:
        counts = [
            str(total[name, kind, f"{when} {x}"])
            for when in ("before", "after")
            for x in outcomes
        ]
        print(f"{name}, {kind}: {total[name, kind, 'all']};", *counts)
    for kind in sorted({kind for _, kind in names}):
        counts = [
            str(sum(n for k, n in total.items() if k[1:] == (kind, said)))
            for said in (
                "all",
                *(f"before {x}" for x in outcomes),
                *(f"after {x}" for x in outcomes),
            )
        ]
        print(f"all, {kind}:", *counts)


if __name__ == "__main__":
    main()
