"""The options of `flash_attention`: refused, or applied to a tile's scores.

Source: soft-cap: Gemma 2 (2024), section 2, https://arxiv.org/abs/2408.00118;
    ALiBi: Press et al. (2022), section 3, https://arxiv.org/abs/2108.12409;
    the others: `attnbook.masks`
Axes: B batch, H heads, G groups (key-value heads), R query heads a group, T
    queries, S keys, D width of query and key, E value width
"""

import math
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import or_

import torch
from torch import Tensor

from attnbook.attention.scaled_dot_product import require_equal_widths
from attnbook.attention.tiled import TileScores, promote_to_float32


@dataclass(frozen=True)
class Options:
    """The arguments of `flash_attention` of the same names."""

    causal: bool = False
    window: int | None = None
    key_lengths: Tensor | None = None
    alibi_slopes: Tensor | None = None
    softcap: float | None = None
    scale: float | None = None

    def factor(self, width: int) -> float:
        """Return the scale of the dot products of vectors of this width."""
        return width**-0.5 if self.scale is None else float(self.scale)

    def numbers(
        self, width: int, keys: int
    ) -> tuple[bool, int | None, float | None, float]:
        """Return causal, window, soft-cap and scale for the operators."""
        # More than all keys has the same effect, and may overflow an integer.
        window = self.window and min(self.window, keys)
        softcap = None if self.softcap is None else float(self.softcap)
        return bool(self.causal), window, softcap, self.factor(width)


class MaskedTileScores(TileScores):
    """Scores of a tile with soft-cap, ALiBi and mask.

    Queries have the shape (B, G, R, T, D), keys (B, G, 1, S, D).
    """

    def __init__(self, query: Tensor, key: Tensor, options: Options):
        super().__init__(key.shape[-2], options.factor(query.shape[-1]))
        self.options, self.shift = options, key.shape[-2] - query.shape[-2]
        self.lengths = self.slopes = None
        if options.key_lengths is not None:
            self.lengths = options.key_lengths.view(-1, 1, 1, 1, 1)
            # Tiles beyond every length are skipped where that needs no sync.
            if self.lengths.device.type == "cpu":
                self.keys = int(self.lengths.max())
        if options.alibi_slopes is not None:
            slopes = options.alibi_slopes.to(promote_to_float32(query))
            B, G, R = query.shape[:3]
            self.slopes = slopes.expand(B, G * R).reshape(B, G, R, 1, 1)

    def key_range(self, first: int, stop: int) -> tuple[int, int]:
        """Return which keys queries first ... stop - 1 can attend to."""
        low, high = 0, self.keys
        if self.options.causal or self.options.window:
            high = max(0, min(high, stop + self.shift))
        if self.options.window:
            low = max(0, first + self.shift - self.options.window + 1)
        return low, high

    def compute(
        self, query: Tensor, key: Tensor, row: int, column: int
    ) -> tuple[Tensor, Tensor | float]:
        """Return a tile's scores, and their derivatives by the dot products."""
        scores, slope = super().compute(query, key, row, column)
        if self.options.softcap is not None:
            squashed = (scores / self.options.softcap).tanh()
            scores = self.options.softcap * squashed
            slope = slope * (1 - squashed**2)
        rows, columns = (
            torch.arange(x.shape[-2], device=x.device) for x in (query, key)
        )
        columns = column + columns
        back = row + self.shift + rows[:, None] - columns
        if self.slopes is not None:
            scores = scores - self.slopes * back.abs()
        masked_out = []
        if self.options.causal or self.options.window:
            masked_out.append(back < 0)
        if self.options.window:
            masked_out.append(back >= self.options.window)
        if self.lengths is not None:
            masked_out.append(columns >= self.lengths)
        if masked_out:
            scores = scores.masked_fill(reduce(or_, masked_out), -torch.inf)
        return scores, slope


# Where packed sequences begin: offsets of queries and of keys, or neither.
Packing = tuple[Tensor | None, Tensor | None]
NO_PACKING: Packing = None, None
DTYPES = torch.float16, torch.bfloat16, torch.float32, torch.float64


def refuse(query: Tensor, key: Tensor, value: Tensor, options: Options) -> None:
    """Raise ValueError for a call that `flash_attention` does not take."""
    require_tensors(query, key, value)
    require_shapes(query, key, value)
    require_numbers(options)
    if options.key_lengths is not None:
        require_lengths(options.key_lengths, key)
    if options.alibi_slopes is not None:
        require_slopes(options.alibi_slopes, query)


def require_tensors(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raise ValueError for wrong numbers of axes, devices and dtypes."""
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim != 4:
            raise ValueError(
                f"{name} must have 4 axes (batch, heads, length, width), but "
                f"has {x.ndim}: {tuple(x.shape)}"
            )
        if (x.device, x.dtype) != (query.device, query.dtype):
            raise ValueError(f"query is {describe(query)}, but {name} {describe(x)}")
    if query.dtype not in DTYPES:
        raise ValueError(
            f"query is {query.dtype}, but must be float16, bfloat16, float32 or float64"
        )


def require_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raise ValueError for shapes that do not fit each other."""
    (B, H, T, D), (_, G, S, _), E = query.shape, key.shape, value.shape[-1]
    for name, x in (("keys", key), ("values", value)):
        if len(x) != B:
            raise ValueError(f"queries of {B} sequences, but {name} of {len(x)}")
    require_equal_widths(query, key)
    if key.shape[1:3] != value.shape[1:3]:
        raise ValueError(
            f"keys have {G} heads of {S} but values {value.shape[1]} of "
            f"{value.shape[2]}: each key needs its value"
        )
    if G < 1 or H < 1 or H % G:
        raise ValueError(f"{H} heads do not divide into {G} groups")
    if min(B, T, S, D, E) < 1:
        raise ValueError(
            f"nothing to attend to: batch {B}, T = {T} queries, S = {S} keys, D = "
            f"{D} and E = {E} wide; each must be at least 1"
        )


def require_numbers(options: Options) -> None:
    """Raise ValueError for an invalid window, soft-cap or scale."""
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


def require_lengths(lengths: Tensor, key: Tensor) -> None:
    """Raise ValueError unless there is one int32 or int64 for each sequence."""
    whole = has_integers(lengths)
    if not whole or lengths.shape != key.shape[:1] or lengths.device != key.device:
        raise ValueError(
            "key_lengths must be int32 or int64 of shape "
            f"({len(key)},) on {key.device}, but are {describe(lengths)}"
        )


def has_integers(x: object) -> bool:
    """Return whether this is a tensor of int32 or int64.

    In smaller types differences overflow, and uint8 indexes as a mask.
    """
    return isinstance(x, Tensor) and x.dtype in (torch.int32, torch.int64)


def describe(x: object) -> str:
    """Return type, shape and device of a tensor in words, or what is not one."""
    if not isinstance(x, Tensor):
        return repr(x)
    return f"{x.dtype} of shape {tuple(x.shape)} on {x.device}"


def require_length_values(lengths: Tensor, keys: int) -> None:
    """Raise ValueError for key lengths on the CPU that are not from 0 to S.

    Reading numbers from another device would wait for it in every layer, and a
    CUDA graph cannot wait at all: there the kernels bound the lengths instead.
    """
    if lengths.device.type != "cpu":
        return
    low, high = lengths.aminmax()
    if low < 0 or high > keys:
        raise ValueError(
            f"key_lengths must be from 0 to S = {keys}, but are {lengths.tolist()}"
        )


def require_offsets(packing: tuple[Tensor, Tensor], query: Tensor) -> None:
    """Raise ValueError unless offsets are int32 or int64, of as many sequences."""
    for name, x in zip(("query_offsets", "key_offsets"), packing, strict=True):
        if not has_integers(x) or x.ndim != 1 or len(x) < 2 or x.device != query.device:
            raise ValueError(
                f"{name} must be at least 2 int32 or int64 on one axis, on "
                f"{query.device}, but are {describe(x)}"
            )
    queries, keys = (len(x) - 1 for x in packing)
    if queries != keys:
        raise ValueError(
            f"there are queries of {queries} sequences, but keys of {keys}"
        )


def read_counts(name: str, offsets: Tensor | None, rows: int) -> list[int]:
    """Return how many rows each packed sequence has, or raise ValueError."""
    if offsets is None:
        return [rows]
    numbers = offsets.tolist()
    counts = [end - begin for begin, end in pairwise(numbers)]
    if numbers[0] != 0 or numbers[-1] != rows or min(counts) < 0:
        raise ValueError(
            f"{name} must ascend from 0 to {rows}, the number of rows, but are "
            f"{numbers}"
        )
    return counts


def require_slopes(slopes: Tensor, query: Tensor) -> None:
    """Raise ValueError unless slopes are one number per head, no gradient."""
    B, H = query.shape[:2]
    fits = isinstance(slopes, Tensor) and slopes.is_floating_point()
    if not fits or slopes.shape not in ((H,), (B, H)) or slopes.device != query.device:
        raise ValueError(
            f"alibi_slopes must be floating point of shape ({H},) or ({B}, {H}) on "
            f"{query.device}, but are {describe(slopes)}"
        )
    if slopes.requires_grad:
        raise ValueError(
            "alibi_slopes have requires_grad=True, but only query, key and "
            "value get gradients: detach the slopes, or use attend with a bias"
        )
