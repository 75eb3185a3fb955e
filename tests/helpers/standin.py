"""Two stand-ins for a GPU that find a tensor made on the wrong device.

`StandinTensor` is a tensor that reports a private device and computes on the
CPU, so its values can be read. A `StandinDevice` checks every call of PyTorch:
tensors of the two devices do not mix, save where CUDA lets them (a CPU tensor
without axes, an index, the lengths of a packed sequence). A tensor made
without `device=` is an ordinary CPU tensor, and is refused where it meets
another.

PyTorch's device "meta" refuses mixing by itself, but has no values.
`AssumedValues` supplies those that the models read there: a condition that
refuses an input is False, and a length is 1.
"""

from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode

from attnbook.attention.tensor_trees import collect_tensors, map_tensors
from attnbook.exercises.copying import copy_input

PLACE = torch.device("privateuseone", 0)
# What cuDNN and PyTorch's packed sequences want on the CPU.
FROM_CPU = {"_pack_padded_sequence", "_pad_packed_sequence", "gru", "lstm"}
# What copies, or asks, across devices.
FROM_CPU |= {"copy_", "_has_compatible_shallow_copy_type"}
# Their results that stay on the CPU: sizes of batches, lengths.
TO_CPU = {"_pack_padded_sequence", "_pad_packed_sequence"}
INDEXING = {"__getitem__", "__setitem__"}
READS = {"device", "is_cuda", "is_meta", "is_cpu"}
WRONG = "Expected all tensors to be on the same device"


class StandinTensor(torch.Tensor):
    """A tensor that says it is on PLACE, with its numbers in main memory."""

    @property
    def device(self):
        return PLACE

    @property
    def is_cpu(self):
        return False

    def numpy(self, *args, **kwargs):
        raise TypeError(f"can't convert {PLACE} device type tensor to numpy")

    def __array__(self, *args, **kwargs):
        return self.numpy()

    def __format__(self, spec):
        # A tensor without axes has the format of its number on every device.
        return format(move_to_cpu(self), spec)

    __torch_function__ = torch._C._disabled_torch_function_impl


def move_to_standin(x):
    """Return a tensor on PLACE, a leaf if it was one."""
    leaf = x.is_leaf and x.requires_grad
    with torch._C.DisableTorchFunction():
        moved = (x.detach() if leaf else x).as_subclass(StandinTensor)
    return moved.requires_grad_() if leaf else moved


def move_to_cpu(x):
    """Return a tensor on the CPU."""
    with torch._C.DisableTorchFunction():
        return x.as_subclass(torch.Tensor)


def is_on_standin(x):
    return isinstance(x, StandinTensor)


def names_standin(value):
    if isinstance(value, str):
        value = torch.device(value)
    return value if isinstance(value, torch.device) else None


class StandinDevice(TorchFunctionMode):
    """PyTorch with one more device; entered with `with`."""

    def __enter__(self):
        # So that `module.to(PLACE)` makes parameters of the other class.
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        return super().__enter__()

    def __exit__(self, *error):
        torch.__future__.set_overwrite_module_params_on_conversion(False)
        return super().__exit__(*error)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "__get__":
            owner = getattr(func, "__self__", None)
            name = getattr(owner, "__name__", "")
            if name in READS and args and is_on_standin(args[0]):
                return PLACE if name == "device" else False
        if name in ("to", "cpu", "type_as"):
            return self.moved(func, name, args, kwargs)
        tensors = collect_tensors((args, kwargs))
        place = None
        if "device" in kwargs and kwargs["device"] is not None:
            place = names_standin(kwargs["device"])
            if place is not None and place.type == PLACE.type:
                kwargs["device"] = torch.device("cpu")
        elif any(map(is_on_standin, tensors)):
            self.refuse_mixing(func, name, tensors, args)
            place = PLACE
        made = func(*args, **kwargs)
        if place != PLACE:
            return made
        return self.placed(made, name)

    def placed(self, made, name):
        def place(x):
            return x if is_on_standin(x) else move_to_standin(x)

        if name in TO_CPU:
            first, *rest = made
            return (place(first), *rest)
        return map_tensors(place, made)

    def refuse_mixing(self, func, name, tensors, args):
        if name in FROM_CPU:
            return
        if name in INDEXING and is_on_standin(args[0]):
            tensors = collect_tensors(args[2:])
        for x in tensors:
            if not is_on_standin(x) and x.ndim > 0 and x.device.type == "cpu":
                raise RuntimeError(
                    f"{WRONG}, but {name or func} got one on cpu of shape "
                    f"{tuple(x.shape)} beside one on {PLACE}"
                )

    def moved(self, func, name, args, kwargs):
        """Do what `to`, `cpu` and `type_as` do, between the two devices."""
        x, *rest = args
        target, kept = is_on_standin(x) and name != "cpu", []
        for value in (*rest, kwargs.pop("device", None)):
            if isinstance(value, torch.Tensor):
                target = is_on_standin(value)
                kept.append(value.dtype)
            elif isinstance(value, str | torch.device):
                target = names_standin(value).type == PLACE.type
            elif isinstance(value, torch.dtype):
                kept.append(value)
        made = move_to_cpu(x)
        if kept or kwargs:
            made = made.to(*kept, **kwargs)
        if target == is_on_standin(x) and made.data_ptr() == x.data_ptr():
            return x  # it is there, and of this type, already
        return move_to_standin(made) if target else made


class TrialDevice:
    """A device to try: how things get there, and whether they are there."""

    def __init__(self, name, device):
        self.name, self.device = name, device
        self.leaves = []

    def model(self, model):
        """Return a copy of a module with parameters and buffers there."""
        model, known = copy_input(model), {}

        def once(x):
            if id(x) not in known:
                known[id(x)] = self.tensor(x, learned=False)
                if isinstance(x, torch.nn.Parameter):
                    known[id(x)] = torch.nn.Parameter(known[id(x)], x.requires_grad)
                    self.leaves.append(known[id(x)])
            return known[id(x)]

        for module in model.modules():
            for key, value in [*module._parameters.items()]:
                if value is not None:
                    setattr(module, key, once(value))
            for key, value in [*module._buffers.items()]:
                if value is not None:
                    module._buffers[key] = once(value)
        return model

    def tensor(self, x, learned=True):
        """Return a copy there, a leaf; of floats, one with a gradient."""
        x = x.detach().clone()
        if self.device == PLACE:
            x = move_to_standin(x)
        elif self.device.type == "meta":
            x = x.to("meta")
        if learned and x.is_floating_point():
            self.leaves.append(x.requires_grad_())
        return x

    def __call__(self, x):
        if isinstance(x, torch.nn.Module):
            return self.model(x)
        return map_tensors(self.tensor, x)

    def holds(self, x):
        return x.device == self.device

    @contextmanager
    def entered(self):
        if self.device == PLACE:
            with StandinDevice():
                yield
        elif self.device.type == "meta":
            with AssumedValues():
                yield
        else:
            yield


class AssumedValues(TorchFunctionMode):
    """Supplies what is read of a tensor on "meta"."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        x = args[0] if args else None
        if isinstance(x, torch.Tensor) and x.is_meta:
            if name == "__bool__":
                return False
            if name == "__int__":
                return 0
            if name == "cpu" and x.dtype == torch.int64:
                # Fits as a length and, in a batch of two, as an index.
                return torch.ones_like(x, device="cpu")
        return func(*args, **kwargs)


CPU = TrialDevice("cpu", torch.device("cpu"))
META = TrialDevice("meta", torch.device("meta"))
STANDIN = TrialDevice("stand-in", PLACE)
