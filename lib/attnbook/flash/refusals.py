"""What `flash_attention` does not take, said in one sentence each.

Chapter: chapters/11_flash_attention
Source: none
Axes: B batch, H heads, G groups (key-value heads), T queries, S keys, D width
    of query and key, E value width
"""

import math

import torch
from torch import Tensor

from attnbook.flash.options import Options

WIDEST = 256
KINDS = torch.float16, torch.bfloat16, torch.float32, torch.float64


def refuse(query: Tensor, key: Tensor, value: Tensor, options: Options) -> None:
    """Raise ValueError for a call that `flash_attention` does not take."""
    refuse_tensors(query, key, value)
    refuse_shapes(query, key, value)
    refuse_numbers(options)
    if options.key_lengths is not None:
        refuse_lengths(options.key_lengths, key)
    if options.alibi_slopes is not None:
        refuse_slopes(options.alibi_slopes, query)


def refuse_tensors(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Refuse numbers of axes, devices and precisions that do not go."""
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim != 4:
            raise ValueError(
                f"{name} must have 4 axes (batch, heads, length, width), but "
                f"has {x.ndim}: {tuple(x.shape)}"
            )
        if x.device != query.device:
            raise ValueError(
                f"query is on {query.device} but {name} on {x.device}"
            )
        if x.dtype != query.dtype:
            raise ValueError(f"query is {query.dtype} but {name} {x.dtype}")
    if query.dtype not in KINDS:
        raise ValueError(
            f"query is {query.dtype}, but must be float16, bfloat16, float32 "
            "or float64"
        )


def refuse_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Refuse shapes that do not fit each other, or do not fit a kernel."""
    (B, H, T, D), (_, G, S, _), E = query.shape, key.shape, value.shape[-1]
    for name, x in (("keys", key), ("values", value)):
        if len(x) != B:
            raise ValueError(f"queries of {B} texts, but {name} of {len(x)}")
    if key.shape[-1] != D:
        raise ValueError(
            f"queries are {D} wide but keys are {key.shape[-1]}: "
            "a dot product needs equal widths"
        )
    if key.shape[1:3] != value.shape[1:3]:
        raise ValueError(
            f"keys have {G} heads of {S} but values {value.shape[1]} of "
            f"{value.shape[2]}: each key needs its value"
        )
    if G < 1 or H < 1 or H % G:
        raise ValueError(f"{H} heads do not divide into {G} groups")
    if B < 1 or T < 1 or S < 1:
        raise ValueError(
            f"nothing to attend: batch {B}, T = {T} queries, S = {S} keys; "
            "each must be at least 1"
        )
    for name, width in (("query and key", D), ("value", E)):
        if not 1 <= width <= WIDEST:
            raise ValueError(
                f"{name} are {width} wide, but must be 1 to {WIDEST} wide"
            )


def refuse_numbers(options: Options) -> None:
    """Refuse a window, soft-cap or scale that means nothing."""
    window = options.window
    if window is not None and (type(window) is not int or window < 1):
        raise ValueError(
            f"a window is a whole number of keys, at least 1, not {window!r}"
        )
    for name, number, low in (
        ("softcap", options.softcap, 0.0),
        ("scale", options.scale, -math.inf),
    ):
        if number is None:
            continue
        if isinstance(number, Tensor) or not low < number < math.inf:
            raise ValueError(
                f"{name} must be a finite number above {low}, not {number!r}"
            )


def refuse_lengths(lengths: Tensor, key: Tensor) -> None:
    """Refuse key lengths that are not one number from 0 to S a text."""
    B, S = key.shape[0], key.shape[2]
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise ValueError(
            f"key_lengths must be whole numbers, but are {lengths.dtype}"
        )
    if lengths.shape != (B,):
        raise ValueError(
            f"key_lengths must be ({B},), one a text, but are "
            f"{tuple(lengths.shape)}"
        )
    if lengths.device != key.device:
        raise ValueError(
            f"keys are on {key.device} but key_lengths on {lengths.device}"
        )
    # To look at numbers on a GPU is to wait for it; a graph cannot.
    if lengths.is_cuda and torch.cuda.is_current_stream_capturing():
        return
    low, high = lengths.aminmax()
    if low < 0 or high > S:
        raise ValueError(
            f"key_lengths must be from 0 to S = {S}, but are {lengths.tolist()}"
        )


def refuse_slopes(slopes: Tensor, query: Tensor) -> None:
    """Refuse slopes that are not one number a head, or that want a gradient."""
    B, H = query.shape[:2]
    if slopes.shape not in ((H,), (B, H)):
        raise ValueError(
            f"alibi_slopes must be ({H},) or ({B}, {H}), but are "
            f"{tuple(slopes.shape)}"
        )
    if not slopes.is_floating_point():
        raise ValueError(
            f"alibi_slopes must be floating point, but are {slopes.dtype}"
        )
    if slopes.device != query.device:
        raise ValueError(
            f"query is on {query.device} but alibi_slopes on {slopes.device}"
        )
    if slopes.requires_grad:
        raise ValueError(
            "alibi_slopes have requires_grad=True, but only query, key and "
            "value get gradients: detach the slopes, or use attend with a bias"
        )
