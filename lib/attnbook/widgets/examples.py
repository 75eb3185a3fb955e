"""What widgets take: examples made of words and weights, checked on arrival."""

from collections.abc import Iterable, Mapping, Sequence


def read_field(holder, name: str, what: str):
    """Return a named part of a mapping, or say what lacks it."""
    if not isinstance(holder, Mapping) or name not in holder:
        has = sorted(holder) if isinstance(holder, Mapping) else holder
        raise ValueError(f"{what} lacks {name!r}; it has {has!s:.60}")
    return holder[name]


def read_fields(holder, names: Iterable[str], what: str) -> dict:
    """Return these parts of a mapping, or say which it lacks."""
    return {name: read_field(holder, name, what) for name in names}


def read_words(value, what: str) -> list[str]:
    """Return a list of words, or say what is no list of words."""
    fits = isinstance(value, Sequence) and not isinstance(value, str)
    if not fits or not all(isinstance(word, str) for word in value):
        raise ValueError(f"{what} must be a list of strings, not {value!r:.60}")
    return list(value)


def read_weights(
    row: Iterable, words: list[str], number: int, what: str = "source word"
) -> list[float]:
    """Return a row of weights to 3 digits, or say why it cannot be one."""
    numbers = [float(x) for x in row]
    if len(numbers) != len(words):
        raise ValueError(
            f"row {number} has {len(numbers)} weights for {len(words)} {what}s"
        )
    for at, x in enumerate(numbers):
        if not -0.001 <= x <= 1.001:  # NaN and infinities do not pass either
            raise ValueError(
                f"row {number} gives {what} {at}, {words[at]!r}, the "
                f"weight {x}; a weight lies between 0 and 1"
            )
    return [round(x, 3) for x in numbers]


def require_choice(name: str, at: int, count: int, low: int = 0) -> None:
    """Raise ValueError unless low <= at < count."""
    if not low <= at < count:
        raise ValueError(f"{name} is {at}, but there are {count}, counted from 0")


def read_integer(value, low: int, high: int, what: str) -> int:
    """Return a whole number of a range, or say what is none."""
    if not isinstance(value, int) or not low <= value <= high:
        raise ValueError(
            f"{what} must be a whole number from {low} to {high}, not {value!r}"
        )
    return int(value)


def require_length(values: Sequence, count: int, what: str) -> None:
    """Raise ValueError unless there are so many values."""
    if len(values) != count:
        raise ValueError(f"{what} has {len(values)} numbers, not {count}")
