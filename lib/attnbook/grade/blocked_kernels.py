"""Ready-made attention kernels, blocked in the process that runs attempts.

A student's code could find and disable the guard of a check
(`exercises.guard`). It cannot disable a kernel that was replaced inside
PyTorch: every call of it raises an error.
"""

import contextlib
import ctypes
import functools
import warnings

import torch
from torch.nn import functional

KERNELS = (
    ("scaled_dot_product_attention", "CompositeImplicitAutograd"),
    ("_scaled_dot_product_attention_math", "CompositeImplicitAutograd"),
    ("_scaled_dot_product_flash_attention_for_cpu", "CPU"),
    ("_native_multi_head_attention", "CPU"),
    ("_transformer_encoder_layer_fwd", "CPU"),
)


def refuse(*args, **kwargs):
    """Raise the error of a blocked kernel."""
    raise RuntimeError("a ready-made attention is not allowed here")


@functools.cache
def block_kernels() -> None:
    """Replace the kernels of ready-made attention permanently.

    Kernels that this PyTorch lacks, or does not let us replace, are left to
    the guard.
    """
    functional.multi_head_attention_forward.__code__ = refuse.__code__
    library = getattr(torch._C, "_dispatch_library", None)
    if library is None:
        return
    for name, key in KERNELS:
        with contextlib.suppress(RuntimeError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            held = library("IMPL", "aten", key, __file__, 1)
            held.impl(name, key, refuse)
            # Kept without a name by which it could be found and taken back.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))
