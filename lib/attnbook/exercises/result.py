"""The result of a call: its kind in words, and its tensors."""

import numbers
import sys
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def read_result(
    returned, given: Sequence, probe: tuple[Tensor, ...]
) -> tuple[str, tuple[Tensor, ...]]:
    """Return the kind of what a call returned, in words, and its tensors.

    Two models are compared by their outputs: the returned one is called, and
    then the given one, which shows whether the call left it as it was.

    Args:
        returned: what the call returned.
        given: the inputs of the call.
        probe: what models are called with; if it is empty, none is called.
    """
    if not (probe and isinstance(returned, nn.Module)):
        return split_result(returned)
    found = [split_result(call_model(returned, probe))]
    found += [
        split_result(model(*map(torch.clone, probe)))
        for model in given
        if isinstance(model, nn.Module)
    ]
    for form, _ in found:
        if form != "a tensor":
            return f"a model that returns {form}", ()
    return "a model", tuple(tensors[0] for _, tensors in found)


def call_model(model: nn.Module, probe: tuple[Tensor, ...]):
    """Return what a returned model computes.

    Raises:
        RuntimeError: if it raises an error; the message says so.
    """
    try:
        return model(*map(torch.clone, probe))
    except NotImplementedError:  # it may be a stub
        raise
    except Exception as raised:
        shapes = ", ".join(str(tuple(x.shape)) for x in probe)
        raise RuntimeError(
            f"the returned model, called with a tensor {shapes}, raises "
            f"{type(raised).__name__}: {raised}"
        ) from raised


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
        if (listed := read_numbers(given)) is not None:
            whole = listed.dtype == torch.int64
            return f"a list of {'integers' if whole else 'numbers'}", (listed,)
        kinds = ", ".join(type(x).__name__ for x in given)
        return f"a {type(given).__name__} of {kinds}", ()
    return f"an object of type {type(given).__name__}", read_array(given)


def read_numbers(given: Sequence) -> Tensor | None:
    """Return the tensor of a list of numbers, or None if it holds others.

    Python's numbers, NumPy's and 0-dimensional arrays and tensors are numbers;
    whole ones are integers, however they are held.
    """
    found = []
    for x in given:
        if is_boolean(x) or getattr(x, "shape", ()) != ():
            return None
        x = x.item() if hasattr(x, "item") else x
        if not isinstance(x, numbers.Real):
            return None
        found.append(x)
    if all(isinstance(x, int) or float(x).is_integer() for x in found):
        return make_integers(found)
    return torch.tensor([float(x) for x in found], dtype=torch.float64)


def make_integers(found: Sequence) -> Tensor | None:
    """Return whole numbers as a tensor, or None if one is too large for it."""
    whole = [int(x) for x in found]
    if any(abs(x) >= 2**63 for x in whole):
        return None
    return torch.tensor(whole, dtype=torch.int64)


def read_array(given) -> tuple[Tensor, ...]:
    """Return the tensor of a NumPy array of numbers, if it is one."""
    numpy = sys.modules.get("numpy")
    if not numpy or type(given) is not numpy.ndarray:
        return ()
    kinds = {"i": torch.int64, "u": torch.int64, "f": torch.float64}
    kind = kinds.get(given.dtype.kind)
    if kind is None or given.dtype == numpy.uint64:
        return ()
    return (torch.tensor(given.tolist(), dtype=kind),)


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
