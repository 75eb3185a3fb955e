"""The order of collected tests: those of one exercise run together."""

from collections.abc import Iterable


def is_exercise(value: object) -> bool:
    """Return whether a test's parameter is an exercise."""
    return hasattr(value, "solution") and hasattr(value, "mistakes")


def find_exercise(item) -> object | None:
    """Return the exercise among the parameters of a collected test."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    values = (getattr(x, "exercise", x) for x in params.values())
    return next(filter(is_exercise, values), None)


def put_exercises_together(items: Iterable) -> list:
    """Return tests in their order, each exercise's with its first one.

    What an exercise's own answers give is stored for the next check, and the
    store has room for a few exercises only.
    """
    first: dict[int, int] = {}
    places = {}
    for place, item in enumerate(items):
        places[item] = place
        if (exercise := find_exercise(item)) is not None:
            places[item] = first.setdefault(id(exercise), place)
    return sorted(places, key=places.__getitem__)
