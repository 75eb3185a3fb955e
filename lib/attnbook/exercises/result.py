"""The result of a call: its kind in words, and its tensors."""

import numbers

import torch
from torch import Tensor


def split_result(given) -> tuple[str, tuple[Tensor, ...]]:
    """Return the kind of a result, in words, and its tensors."""
    if given is None:
        return "None", ()
    if is_boolean(given):
        return "a boolean", (torch.tensor(bool(given)),)
    if is_tensor(given):
        return "a tensor", (given,)
    if isinstance(given, numbers.Real):
        return "a number", (torch.tensor(float(given)),)
    if isinstance(given, tuple | list):
        if all(map(is_tensor, given)) and given:
            plural = "s" if len(given) > 1 else " in a tuple or list"
            return f"{len(given)} tensor{plural}", tuple(given)
        if all(type(x) is int for x in given):
            return "a list of integers", (torch.tensor(given).long(),)
        kinds = ", ".join(type(x).__name__ for x in given)
        return f"a {type(given).__name__} of {kinds}", ()
    return f"an object of type {type(given).__name__}", ()


def is_tensor(given) -> bool:
    """Tell whether something is a tensor without a dispatch of its own."""
    dispatch = getattr(type(given), "__torch_dispatch__", None)
    return isinstance(given, Tensor) and dispatch is Tensor.__torch_dispatch__


def is_boolean(given) -> bool:
    """Tell whether something is a single boolean: Python's or an array's."""
    kind = str(getattr(given, "dtype", type(given).__name__))
    bare = getattr(given, "shape", ()) == ()
    return bare and kind in ("bool", "torch.bool")


def copy_numbers(x: Tensor) -> Tensor:
    """Return a tensor's numbers without graph, device and layout.

    Overridden methods of a tensor subclass are not called.
    """
    with torch._C.DisableTorchFunctionSubclass():
        x = x.detach().cpu()
        return (x if x.layout == torch.strided else x.to_dense()).clone()
