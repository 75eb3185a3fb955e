"""Find and replace tensors in nested tuples, lists and dictionaries.

Our own loops do this, because those of `torch.utils._pytree` take longer than
the operations whose arguments they would search.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_map_only


def collect_tensors(values: object) -> list[Tensor]:
    """Return the tensors in nested tuples, lists and dictionaries, in order."""
    found: list[Tensor] = []
    rest = [values]
    while rest:
        x = rest.pop()
        if isinstance(x, Tensor):
            found.append(x)
        elif isinstance(x, tuple | list):
            rest.extend(reversed(x))
        elif isinstance(x, dict):
            rest.extend(reversed(x.values()))
    return found


def map_tensors(change: Callable[[Tensor], Any], values: Any) -> Any:
    """Return nested tuples, lists and dictionaries with every tensor replaced.

    Args:
        change: returns what replaces a tensor.
        values: a tensor, a container, or any other value, kept unchanged.
    """
    if isinstance(values, Tensor):
        return change(values)
    kind = type(values)
    if kind is tuple or kind is list:
        return kind([map_tensors(change, x) for x in values])
    if isinstance(values, tuple | list | dict):  # dictionaries, named tuples
        return tree_map_only(Tensor, change, values)
    return values
