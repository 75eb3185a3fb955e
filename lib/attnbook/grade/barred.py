"""A ready-made attention, made useless in the process that tries attempts.

The look-out of a check (`exercises.guard`) can be found there and blinded. What
replaces a kernel inside PyTorch cannot: whichever way leads to it, it raises.

Chapter: all of them
Source: none
Axes: none
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
    """Raise what a ready-made attention raises from now on."""
    raise RuntimeError("a ready-made attention is not allowed here")


@functools.cache
def bar() -> None:
    """Replace the kernels of ready-made attentions, for good.

    Whatever of them this PyTorch lacks, or does not let us replace, is left to
    the look-out.
    """
    functional.multi_head_attention_forward.__code__ = refuse.__code__
    library = getattr(torch._C, "_dispatch_library", None)
    for name, key in KERNELS if library else ():
        with contextlib.suppress(RuntimeError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            held = library("IMPL", "aten", key, __file__, 1)
            held.impl(name, key, refuse)
            # Kept without a name by which it could be found and taken back.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))
