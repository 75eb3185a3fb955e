"""Whether an answer knows the first inputs by heart, and nothing else."""

from collections.abc import Sequence

from attnbook.exercises.outcome import Case
from attnbook.exercises.runner import is_unchanged


def looks_hard_coded(drawn: Sequence[tuple[Case, ...]], wrong: set[int]) -> bool:
    """Tell whether an answer, right at first, is wrong on all new inputs.

    A formula that holds for some inputs, or one that rounds more, is right in
    some of the new cases; results that are written down are wrong in all.

    Args:
        drawn: the first cases, for which it was right, and the new ones.
        wrong: the places of the new cases for which it was wrong.
    """
    first, later = drawn
    new = {
        nth
        for nth, case in enumerate(later)
        if case.asked and not any(has_same_inputs(x, case) for x in first)
    }
    return bool(new) and new <= wrong


def has_same_inputs(one: Case, other: Case) -> bool:
    """Tell whether two cases have equal inputs."""
    return all(
        type(a) is type(b) and is_unchanged(a, b)
        for a, b in zip(one.inputs, other.inputs, strict=True)
    )
