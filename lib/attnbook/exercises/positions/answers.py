"""What goes wrong with positions, as functions.

Axes: B batch, H heads, T queries, S keys, C model width, D width of a head, P
    pairs of columns
"""

from collections.abc import Callable

import torch
from torch import Tensor


def exponents(width: int) -> Tensor:
    """Return 2i / width for each pair of columns."""
    return torch.arange(0, width, 2) / width


def in_turns(even: Tensor, odd: Tensor) -> Tensor:
    """Return the columns of two tensors interleaved."""
    return torch.stack([even, odd], dim=-1).flatten(-2)


def one_after_the_other(even: Tensor, odd: Tensor) -> Tensor:
    """Return all columns of one tensor, then all of the other."""
    return torch.cat([even, odd], dim=-1)


def waves(
    first: int = 0,
    base: float = 10000.0,
    power: Callable[[int], Tensor] = exponents,
    dtype: torch.dtype = torch.float32,
    then: Callable[[Tensor], Tensor] = lambda angle: angle,
    join: Callable[[Tensor, Tensor], Tensor] = in_turns,
) -> Callable:
    """Return sinusoidal positions with a part of them exchanged.

    Args:
        first: the position of the first row.
        base: of the frequencies.
        power: the exponents of 1 / base, from the width.
        dtype: of positions and frequencies.
        then: what happens to the angles.
        join: puts sine and cosine together.
    """

    def answer(length, width):
        steps = (base ** -power(width)).to(dtype)
        at = torch.arange(first, first + length).to(dtype)
        angle = then(at[:, None] * steps)
        return join(angle.sin(), angle.cos()).float()

    return answer


def neighbours(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the even and the odd columns."""
    return x[..., ::2], x[..., 1::2]


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first and the second half of the columns."""
    return x.chunk(2, dim=-1)


def turn(a: Tensor, b: Tensor, sine: Tensor, cosine: Tensor):
    """Return the pair (a, b) rotated, as is right."""
    return a * cosine - b * sine, a * sine + b * cosine


def rotation(
    split: Callable = neighbours,
    join: Callable = in_turns,
    power: Callable[[int], Tensor] = exponents,
    place: Callable[[Tensor], Tensor] = lambda positions: positions,
    root: Callable[[float], float] = lambda base: base,
    angle_of: Callable[[Tensor], Tensor] = lambda angle: angle,
    turned: Callable = turn,
    angle_dtype: Callable = lambda x: torch.float32,
) -> Callable:
    """Return the rotation with a part of it exchanged.

    Args:
        split: cuts columns into the first and second of each pair.
        join: puts them together.
        power: the exponents of 1 / base, from the width.
        place: the positions used, from those given.
        root: the base used, from that given.
        angle_of: what happens to the angles (T, P).
        turned: turns the pairs.
        angle_dtype: of positions, frequencies and angles, from x.
    """

    def answer(x, positions, base=10000.0):
        steps = root(base) ** -power(x.shape[-1])
        dtype = angle_dtype(x)
        at = place(positions)[:, None].to(dtype)
        angle = angle_of(at * steps.to(dtype))
        sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
        return join(*turned(*split(x), sine, cosine))

    return answer


def mixed_pairing(
    x: Tensor, positions: Tensor, base: float = 10000.0
) -> Tensor:
    """Return adjacent pairs rotated by angles laid out for halves."""
    angle = positions[:, None] * base ** -exponents(x.shape[-1])
    angle = torch.cat([angle, angle], dim=-1)
    sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
    return x * cosine + in_turns(-x[..., 1::2], x[..., ::2]) * sine


def mixed_the_other_way(
    x: Tensor, positions: Tensor, base: float = 10000.0
) -> Tensor:
    """Return halves rotated by angles laid out for adjacent pairs."""
    angle = positions[:, None] * base ** -exponents(x.shape[-1])
    angle = angle.repeat_interleave(2, dim=-1)
    sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
    first, second = halves(x)
    return x * cosine + torch.cat([-second, first], dim=-1) * sine


def added(x: Tensor, positions: Tensor, base: float = 10000.0) -> Tensor:
    """Return x with the sinusoidal encodings added."""
    angle = positions[:, None] * base ** -exponents(x.shape[-1])
    return x + in_turns(angle.sin(), angle.cos()).to(x.dtype)


def slopes_of(heads: int) -> Tensor:
    """Return ALiBi's slopes for a power of two."""
    return 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)


def penalty(
    slopes: Callable[[int], Tensor] = slopes_of,
    shape: Callable[[Tensor], Tensor] = lambda away: -away,
    start: Callable[[int, int], int] = lambda T, S: S - T,
) -> Callable:
    """Return ALiBi with a part of it exchanged.

    Args:
        slopes: of the heads.
        shape: the bias for a slope of 1, from how far back a key stands.
        start: the position of the first query, from T and S.
    """

    def answer(heads, T, S):
        t = torch.arange(T)[:, None] + start(T, S)
        return slopes(heads)[:, None, None] * shape(t - torch.arange(S)).float()

    return answer


def looked_up(
    index: Callable[[Tensor, int], Tensor],
    then: Callable[[Tensor], Tensor] = lambda bias: bias,
) -> Callable:
    """Return a bias out of a table, with another index.

    Args:
        index: the column, from s - t and reach.
        then: what happens to the bias.
    """

    def answer(table, T, S):
        away = torch.arange(S) - torch.arange(T)[:, None]
        return then(table[:, index(away, table.shape[-1] // 2)])

    return answer
