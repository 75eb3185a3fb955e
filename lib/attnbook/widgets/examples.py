"""What widgets take: words and their weights, checked on arrival."""

from typing import Any

import torch


def read_weights(weights: Any, *shape: int) -> list:
    """Return weights as nested lists of 3 digits, or say why they do not fit.

    Args:
        weights: a tensor, array or nested lists.
        shape: the last axes that it should have, such as queries and keys.

    Raises:
        ValueError: if it has another shape, or a number is not from 0 to 1.
    """
    table = torch.as_tensor(weights, dtype=torch.float64).detach().cpu()
    if table.shape[-len(shape) :] != shape or not table.numel():
        raise ValueError(
            f"the weights have shape {tuple(table.shape)}, but the words need {shape}"
        )
    wrong = ~((table >= -0.001) & (table <= 1.001))  # True where NaN, too
    if wrong.any():
        raise ValueError(f"a weight is {table[wrong][0]}, not between 0 and 1")
    return round_numbers(table.tolist())


def round_numbers(numbers: list | float) -> Any:
    """Return nested lists of numbers with 3 digits."""
    if isinstance(numbers, list):
        return [round_numbers(x) for x in numbers]
    return round(numbers, 3)


def require_choice(name: str, at: int, count: int, low: int = 0) -> None:
    """Raise ValueError unless low <= at < count."""
    if not low <= at < count:
        raise ValueError(f"{name} is {at}, but there are {count}, counted from 0")
