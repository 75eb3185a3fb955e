"""Cases that follow from what an exercise's function takes.

An exercise draws cases that show its mistakes. To these are added, on the first
inputs, cases of kinds that every function of tensors can get: other numbers of
sequences, of leading axes and of positions, other layouts in memory, masks that
broadcast, padding in the middle. The annotations of the solution say which
inputs have which axes.
"""

import inspect
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnbook.exercises.guard import preserve_state
from attnbook.exercises.named_axes import (
    FIRST,
    SEQUENCES,
    Axes,
    Inputs,
)
from attnbook.exercises.outcome import Case
from attnbook.exercises.runner import run

# Positions, beyond what a table is made for: of encodings, of queries or keys,
# and where every pair is met in a loop.
MOST, LONG, SQUARE = 5003, 1031, 257
SIZES = ("T", "S", "length", "queries", "keys")  # whole numbers of positions
BUILDING_BLOCKS = ("cell", "attention", "network", "first", "second", "attend")

Draw = Callable[[torch.Generator], tuple[Case, ...]]

# What most likely went wrong in a case of each kind.
LIKELY = {
    "batch": "the number of sequences is hard-coded, or a `squeeze` removes "
    "an axis of size 1",
    "axes": "the number of axes is hard-coded; count axes from the end",
    "heads": "the number of heads is hard-coded",
    "positions": "the number of queries is used where the number of keys is "
    "needed, or a number of positions is hard-coded",
    "long": "a table or a buffer has a fixed length",
    "layout": "`view` and `as_strided` depend on the layout in memory; use `reshape`",
    "mask": "a fixed number of axes is assumed for the mask; a mask with fewer "
    "axes should broadcast",
    "padding": "padding is assumed to be at the end only",
    "limit": "the limit is tested after a symbol is added; it should be tested before",
    "nan": "a NaN in one sequence spreads to the other sequences",
}


@dataclass(frozen=True)
class DerivedCases:
    """Draws the cases of an exercise and, on the first inputs, derived ones.

    Attributes:
        draw: draws the cases that the exercise declares.
        solution: the right answer; its annotations name the axes.
        without: the kinds that the exercise's words exclude.
    """

    draw: Draw
    solution: Callable
    without: frozenset[str] = frozenset()

    def __call__(self, rng: torch.Generator) -> tuple[Case, ...]:
        """Return the cases that a generator draws, the declared ones first."""
        first = rng.initial_seed() == FIRST
        cases = self.draw(rng)
        if not first:
            return cases
        return *cases, *self.list_derived(cases)

    def list_derived(self, cases: Sequence[Case]) -> Iterator[Case]:
        """Yield the derived cases on which the solution has an answer."""
        axes = read_axes(self.solution)
        usual = find_usual(cases, len(axes))
        if usual is None:
            return
        plain = is_plain(tuple(axes), usual) and returns_tensors(self.solution)
        for made in derive(axes, usual):
            if made.kind in self.without or repeats(made, cases):
                continue
            if (plain or made.kind == "limit") and has_answer(self.solution, made):
                yield replace(made, likely=LIKELY[made.kind])


def has_answer(solution: Callable, case: Case) -> bool:
    """Tell whether the solution returns numbers for a case."""
    with preserve_state():
        found = run(solution, case, watched=False)
    if found.error or found.stopped or not found.output:
        return False
    numbers = [x for x in found.output if x.is_floating_point()]
    bad = [bool(x.isnan().any()) for x in numbers]
    if case.kind == "nan":
        some = any(bool((~x.isnan()).any()) for x in numbers)
        return any(bad) and some
    return not any(bad)


def read_axes(solution: Callable) -> Axes:
    """Return the names of each input's axes; none if it is no tensor."""
    found = {}
    for name, x in inspect.signature(solution).parameters.items():
        kinds = [x.annotation, *typing.get_args(x.annotation)]
        said = [k.dim_str for k in kinds if hasattr(k, "dim_str")]
        found[name] = tuple(said[0].split()) if said else ()
    return found


def returns_tensors(solution: Callable) -> bool:
    """Tell whether a solution returns a tensor, or several."""
    given = inspect.signature(solution).return_annotation
    kinds = [given, *typing.get_args(given)]
    return any(k is Tensor or hasattr(k, "dim_str") for k in kinds)


def is_plain(names: Sequence[str], usual: Case) -> bool:
    """Tell whether all inputs are tensors, numbers or building blocks."""
    return all(
        x is None or isinstance(x, Tensor | int | float) or name in BUILDING_BLOCKS
        for name, x in zip(names, usual.inputs, strict=True)
    )


def find_usual(cases: Sequence[Case], count: int) -> Case | None:
    """Return the last asked case with gradients, or else the largest one."""

    def rank(case: Case) -> tuple[bool, int]:
        tensors = [x for x in case.inputs if isinstance(x, Tensor)]
        return case.gradient, sum(x.numel() for x in tensors)

    known = [
        case
        for case in cases
        if case.asked
        and not case.memory_limit
        and len(case.inputs) == count
        and all(
            x.dtype == torch.float32
            for x in case.inputs
            if isinstance(x, Tensor) and x.is_floating_point()
        )
    ]
    return max(reversed(known), key=rank, default=None)


def repeats(made: Case, cases: Sequence[Case]) -> bool:
    """Tell whether a declared case has inputs of the same sizes."""
    sized = ("batch", "axes", "heads", "positions")
    return made.kind in sized and any(
        list_sizes(made) == list_sizes(case) for case in cases if case.asked
    )


def list_sizes(case: Case) -> list:
    """Return the shapes of a case's tensors, and its numbers."""
    return [
        tuple(x.shape)
        if isinstance(x, Tensor)
        else x
        if isinstance(x, int | float)
        else None
        for x in case.inputs
    ]


def derive(axes: Axes, usual: Case) -> Iterator[Case]:
    """Yield cases of every kind that inputs with such axes can have."""
    given = Inputs(axes, dict(zip(axes, usual.inputs, strict=True)))
    yield from derive_batches(given)
    yield from derive_heads(given)
    yield from derive_positions(given)
    yield from derive_layouts(given)
    yield from derive_masks(given)
    yield from derive_padding(given)
    yield from derive_beyond(given)


def count_sequences(given: Inputs) -> int:
    """Return how many sequences the inputs have, along their first axes."""
    for name, x in given.given.items():
        names = given.axes[name]
        if isinstance(x, Tensor) and names[:1] == ("*B",):
            return x.shape[: x.dim() - len(names) + 1].numel()
    return given.get_size(SEQUENCES)


def has_lead(given: Inputs) -> bool:
    """Tell whether an input may have any number of axes in front."""
    return any(names[:1] == ("*B",) for names in given.axes.values())


def derive_batches(given: Inputs) -> Iterator[Case]:
    """Yield one sequence and several; any number of leading axes."""
    if given.has_axis(SEQUENCES):
        for size, words in ((1, "one"), (9, "9")):
            made = given.resize(SEQUENCES, size)
            yield made.make_case(f"with a batch of {words}", "batch")
    if has_lead(given):
        for lead, words in (
            ((), "without leading axes"),
            ((3,), "with one leading axis"),
            ((2, 1, 3), "with three leading axes"),
        ):
            yield given.resize_lead(lead).make_case(words, "axes")


def derive_heads(given: Inputs) -> Iterator[Case]:
    """Yield every number of heads that divides the width, or 5 heads."""
    if "heads" in given.given and given.has_axis("C"):
        width = given.get_size("C")
        for heads in (n for n in range(1, width + 1) if width % n == 0):
            words = f"with {heads} head{'s' * (heads > 1)}"
            yield given.replace(heads=heads).make_case(words, "heads")
    if given.has_axis("H"):
        heads = 5 * given.get_size("G")  # 5, if no heads share keys
        made = given.resize("H", heads)
        yield made.make_case(f"with {heads} heads", "heads")


def derive_positions(given: Inputs) -> Iterator[Case]:
    """Yield fewer queries than keys and more, one of each, and very many."""
    known = [axis for axis in SIZES if given.has_axis(axis)]
    sizes: list[tuple[int, ...]] = [(2, 6), (6, 2), (1, 4)]
    sizes = [(1,), (6,)] if len(known) == 1 else sizes
    for size in sizes if known else ():
        made = given
        for axis, n in zip(known, size, strict=False):
            made = made.resize(axis, n)
        pairs = zip(known, size, strict=False)
        words = " and ".join(f"{axis} = {n}" for axis, n in pairs)
        yield made.make_case(f"with {words}", "positions")
    few = given.resize_lead(()) if has_lead(given) else given
    if few.has_axis(SEQUENCES) and "lengths" not in few.given:
        few = few.resize(SEQUENCES, 1)  # of several lengths, one is the longest
    if "block" in few.given:
        few = few.replace(block=LONG // 4)
    for axis in known:
        most = LONG if len(known) > 1 else SQUARE
        alone = axis == "length" or known == ["S"]  # no pairs of positions
        most, made = MOST if alone else most, few
        for other in known:
            made = made.resize(other, 3 if other != axis else most)
        yield made.make_case(f"with {axis} = {most:,}", "long")


def derive_layouts(given: Inputs) -> Iterator[Case]:
    """Yield the same numbers with other layouts in memory."""
    tensors = [x for x in given.given.values() if isinstance(x, Tensor)]
    if not any(x.dim() > 1 for x in tensors):
        return
    transposed = given.change(lambda name, x: transpose_memory(x))
    yield transposed.make_case("with transposed views", "layout")
    if given.has_axis(SEQUENCES):

        def expand(name: str, x: Tensor) -> Tensor:
            for place in given.find_places(name, SEQUENCES):
                if x.dim() > 1:
                    first = x.narrow(place, 0, 1)
                    return first.expand(3, *x.shape[1:])
                return x[:1].repeat(3)
            return x

        expanded = given.change(expand)
        yield expanded.make_case("with an expanded batch", "layout")


def transpose_memory(x: Tensor) -> Tensor:
    """Return the same tensor, with its last two axes swapped in memory."""
    if x.dim() < 2:
        return x
    return x.mT.contiguous().mT


def derive_masks(given: Inputs) -> Iterator[Case]:
    """Yield masks with fewer axes, which broadcast."""
    mask = given.given.get("mask")
    if not isinstance(mask, Tensor) or given.axes["mask"] != ("...",):
        return
    rows = mask.reshape(-1, *mask.shape[-2:])[0]
    row = rows[rows.any(-1).nonzero()[0, 0]]
    columns = rows.any(-1, keepdim=True).index_fill(
        0, torch.tensor([len(rows) - 1]), False
    )
    for made, words in (
        (row, "with a mask of one axis"),
        (row[None], "with a mask of one row"),
        (columns, "with a mask of one column"),
        (rows, "with a mask of two axes"),
    ):
        yield given.replace(mask=made).make_case(words, "mask")


def derive_padding(given: Inputs) -> Iterator[Case]:
    """Yield padding between symbols, and limits of 0 and 1."""
    pad = given.given.get("pad")
    for name, x in given.given.items():
        if pad is None or not isinstance(x, Tensor) or x.is_floating_point():
            continue
        if x.dim() == 2 and x.shape[1] > 3:
            inside = x.clone()
            inside[:, 1] = typing.cast(int, pad)
            made = given.replace(**{name: inside})
            yield made.make_case("with padding between symbols", "padding")
    if isinstance(given.given.get("limit"), int):
        for n in (0, 1):
            made = given.replace(limit=n)
            yield made.make_case(f"with a limit of {n}", "limit")


def derive_beyond(given: Inputs) -> Iterator[Case]:
    """Yield NaN in one sequence, which no exercise asks for in words."""
    if count_sequences(given) < 2:
        return

    def spoil(name: str, x: Tensor) -> Tensor:
        names = given.axes[name]
        batched = names[:1] in (("*B",), (SEQUENCES,))
        if not (batched and x.is_floating_point() and x.dim() > 1):
            return x
        spoilt = x.clone()
        spoilt[0] = torch.nan
        return spoilt

    yield given.change(spoil).make_case(
        "with NaN in one sequence of several", "nan", asked=False
    )
