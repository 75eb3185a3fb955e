"""Wrong answers to the exercises of chapters/08_positions."""

import math

import numpy as np
import torch
from torch.nn import functional as F

from attnbook.exercises import positions as checks
from attnbook.exercises.positions.answers import (
    halves,
    in_turns,
    looked_up,
    neighbours,
    one_after_the_other,
    penalty,
    rotation,
    slopes_of,
    waves,
)
from attnbook.exercises.positions.relative_bias import clipped
from wrong_answers import Wrong
from wrong_answers.common import detached, single, usual

# What is right, to be spoilt.
sinusoidal, rotate, alibi = waves(), rotation(), penalty()
rotate_halves = rotation(split=halves, join=one_after_the_other)
relative_bias = looked_up(clipped)

# Waves


def waves_annotated_half(length, width):
    """The loop of the Annotated Transformer, in half precision throughout."""
    table = torch.zeros(length, width, dtype=torch.float16)
    steps = torch.exp(
        torch.arange(0, width, 2).half() * -(math.log(10000.0) / width)
    )
    at = torch.arange(length).half()[:, None]
    table[:, 0::2] = torch.sin(at * steps)
    table[:, 1::2] = torch.cos(at * steps)
    return table


def waves_fairseq(length, width):
    """Halves, and a spread that ends at the last pair (fairseq, T2T)."""
    half = width // 2
    steps = torch.exp(
        torch.arange(half) * -(math.log(10000.0) / max(half - 1, 1))
    )
    angle = torch.arange(length)[:, None] * steps
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def waves_loop_with_2i(length, width):
    """`i` already goes in steps of two, and is doubled once more."""
    table = torch.zeros(length, width)
    for p in range(length):
        for i in range(0, width, 2):
            table[p, i] = math.sin(p / 10000 ** (2 * i / width))
            table[p, i + 1] = math.cos(p / 10000 ** (2 * i / width))
    return table


def waves_every_column(length, width):
    """The loop over columns that takes j for 2i."""
    table = torch.zeros(length, width)
    for j in range(width):
        angle = torch.arange(length) / 10000 ** (j / width)
        table[:, j] = angle.cos() if j % 2 else angle.sin()
    return table


def waves_precedence(length, width):
    """`10000 ** 2 * i / width`: the power binds first."""
    steps = 10000.0**2 * torch.arange(width // 2) / width
    angle = torch.arange(length)[:, None] / steps.clamp(min=1)
    return in_turns(angle.sin(), angle.cos())


def waves_numpy(length, width):
    return torch.from_numpy(sinusoidal(length, width).double().numpy())


def waves_scaled(length, width):
    return sinusoidal(length, width) / math.sqrt(width)


def waves_learned(length, width):
    torch.manual_seed(0)
    return torch.nn.Embedding(length, width).weight.detach()


def waves_squeezed(length, width):
    """Positions from 0 to 1, whatever the length."""
    angle = torch.linspace(0, 1, length)[:, None] * 10000.0 ** -(
        torch.arange(0, width, 2) / width
    )
    return in_turns(angle.sin(), angle.cos())


def waves_overflowing(length, width):
    """10000^(2i) first, then the root: it overflows."""
    powers = torch.tensor(10000.0) ** torch.arange(0, width, 2)
    angle = torch.arange(length)[:, None] / powers * width
    return in_turns(angle.sin(), angle.cos())


def waves_even_rows(length, width):
    """Sine at even positions, cosine at odd ones."""
    steps = 10000.0 ** -(torch.arange(0, width, 2) / width)
    angle = (torch.arange(length)[:, None] * steps).repeat_interleave(2, dim=1)
    odd = torch.arange(length)[:, None] % 2 == 1
    return torch.where(odd, angle.cos(), angle.sin())


# Rotation


def llama(x, positions, base=10000.0):
    """`rotate_half` of transformers' Llama, with its tables."""
    D = x.shape[-1]
    steps = 1.0 / base ** (torch.arange(0, D, 2).float() / D)
    table = torch.cat([positions[:, None] * steps] * 2, dim=-1)
    half = torch.cat([-x[..., D // 2 :], x[..., : D // 2]], dim=-1)
    return x * table.cos().to(x.dtype) + half * table.sin().to(x.dtype)


def gptj_tables_for_halves(x, positions, base=10000.0):
    """`rotate_every_two` with the tables of `rotate_half`."""
    D = x.shape[-1]
    steps = 1.0 / base ** (torch.arange(0, D, 2).float() / D)
    table = torch.cat([positions[:, None] * steps] * 2, dim=-1)
    two = torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)
    return x * table.cos().to(x.dtype) + two * table.sin().to(x.dtype)


def complex_conjugate(x, positions, base=10000.0):
    """`torch.polar` with the sign turned."""
    D = x.shape[-1]
    steps = base ** -(torch.arange(0, D, 2, dtype=torch.float64) / D)
    angle = -positions[:, None] * steps
    unit = torch.polar(torch.ones_like(angle), angle)
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * unit).flatten(-2).to(x.dtype)


def complex_halves(x, positions, base=10000.0):
    """Real part the first half, imaginary part the second."""
    D = x.shape[-1]
    steps = base ** -(torch.arange(0, D, 2, dtype=torch.float64) / D)
    angle = positions[:, None] * steps
    pairs = torch.complex(*x.double().chunk(2, dim=-1))
    out = pairs * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([out.real, out.imag], dim=-1).to(x.dtype)


def positions_of_a_table(x, positions, base=10000.0):
    """The table's first T rows, as `self.cos[:T]` (no cache in mind)."""
    return rotate(x, torch.arange(x.shape[2]), base)


def first_in_place(x, positions, base=10000.0):
    """The first of each pair is overwritten before the second needs it."""
    x = x.clone()
    D = x.shape[-1]
    steps = base ** -(torch.arange(0, D, 2, dtype=torch.float64) / D)
    angle = positions[:, None] * steps
    sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
    x[..., ::2] = x[..., ::2] * cosine - x[..., 1::2] * sine
    x[..., 1::2] = x[..., ::2] * sine + x[..., 1::2] * cosine
    return x


def written_over(x, positions, base=10000.0):
    return x.copy_(rotate(x, positions, base))


def angles_not_cast(x, positions, base=10000.0):
    """The tables stay in single precision and lift `x` to it."""
    D = x.shape[-1]
    angle = positions[:, None] * base ** -(torch.arange(0, D, 2) / D)
    even, odd = neighbours(x)
    return in_turns(
        even * angle.cos() - odd * angle.sin(),
        even * angle.sin() + odd * angle.cos(),
    )


def half_tables(x, positions, base=10000.0):
    """`positions.to(x.dtype)`: bfloat16 counts to 256."""
    D = x.shape[-1]
    steps = (base ** -(torch.arange(0, D, 2) / D)).to(x.dtype)
    angle = positions.to(x.dtype)[:, None] * steps
    even, odd = neighbours(x)
    return in_turns(
        even * angle.cos() - odd * angle.sin(),
        even * angle.sin() + odd * angle.cos(),
    )


def half_of_the_columns(x, positions, base=10000.0):
    """Partial rotation, as in GPT-NeoX (`rotary_pct`)."""
    cut = max(x.shape[-1] // 4 * 2, 2)
    turned = rotate(x[..., :cut], positions, base)
    return torch.cat([turned, x[..., cut:]], dim=-1)


def along_the_heads(x, positions, base=10000.0):
    """Each head is turned by its own number, each position by none."""
    heads = torch.arange(x.shape[1])
    return rotate(x.transpose(1, 2), heads, base).transpose(1, 2)


def halves_in_neighbours_clothes(x, positions, base=10000.0):
    return rotate_halves(x, positions, base)


def ntk(x, positions, base=10000.0):
    """The NTK-aware base, for a text twice as long."""
    D = x.shape[-1]
    return rotate(x, positions, base * 2 ** (D / max(D - 2, 1)))


def relative_to_the_last(x, positions, base=10000.0):
    return rotate(x, positions - positions[-1], base)


# ALiBi


def with_a_causal_mask_top_left(heads, T, S):
    seen = torch.ones(T, S, dtype=torch.bool).tril()
    return alibi(heads, T, S).masked_fill(~seen, -torch.inf)


def mask_alone(heads, T, S):
    seen = torch.ones(T, S, dtype=torch.bool).tril(S - T)
    return torch.zeros(heads, T, S).masked_fill(~seen, -torch.inf)


def counted_by_key(heads, T, S):
    """-slope · s: a constant of the row away from the opposite sign."""
    slopes = slopes_of(heads)[:, None, None]
    return (-slopes * torch.arange(S)).expand(heads, T, S)


def without_rows(heads, T, S):
    return (slopes_of(heads)[:, None, None] * torch.arange(S)).clone()


# A table of distances


def transposed_table(table, T, S):
    return relative_bias(table, T, S).transpose(1, 2)


def flipped_table(table, T, S):
    return relative_bias(table.flip(-1), T, S)


def reach_of_all_columns(table, T, S):
    columns = table.shape[-1]
    away = torch.arange(S) - torch.arange(T)[:, None]
    return table[:, (away + columns // 2).clamp(1 - columns, columns - 1)]


def zeros_outside(table, T, S):
    """A one-hot of the distance: far ones have no 1."""
    columns = table.shape[-1]
    away = torch.arange(S) - torch.arange(T)[:, None] + columns // 2
    hot = (away[..., None] == torch.arange(columns)).to(table.dtype)
    return torch.einsum("tsr,hr->hts", hot, table)


def nearest_key_is_next(table, T, S):
    away = torch.arange(S) - torch.arange(T)[:, None] - 1
    reach = table.shape[-1] // 2
    return table[:, away.clamp(-reach, reach) + reach]


def through_numbers(table, T, S):
    return torch.tensor(relative_bias(table, T, S).tolist(), dtype=table.dtype)


def swin(table, T, S):
    """A table by head in the last axis, as in Swin's code."""
    return relative_bias(table, T, S).permute(1, 2, 0).contiguous()


def logarithmic(table, T, S):
    away = torch.arange(S) - torch.arange(T)[:, None]
    near = away.sign() * away.abs().float().log1p().long()
    reach = table.shape[-1] // 2
    return table[:, near.clamp(-reach, reach) + reach]


ANSWERS = {
    "check_sinusoidal": (
        *usual(checks.check_sinusoidal),
        Wrong("concatenated", "cat for stack, as in fairseq but for the "
              "spread", "position 0, sorted", waves(join=lambda s, c: torch.cat(
                  [s, c], -1))),
        Wrong("numbers", "fairseq's spread and order", "one pair",
              waves_fairseq),
        Wrong("numbers", "2 · i where i goes in twos", "one pair",
              waves_loop_with_2i),
        Wrong("exponent-by-column", "j for 2i in a loop over columns",
              "the even columns", waves_every_column),
        Wrong("numbers", "`10000 ** 2 * i / width`", "position 0",
              waves_precedence),
        Wrong("dtype", "the whole in half precision", "position 0",
              waves_annotated_half),
        Wrong("double-precision", "NumPy's default is double", "every number",
              waves_numpy),
        Wrong("numbers", "divided by √width", "the zeros", waves_scaled),
        Wrong("numbers", "a learned table instead", "the shape",
              waves_learned),
        Wrong("numbers", "positions squeezed into 0 to 1", "position 0",
              waves_squeezed),
        Wrong("numbers", "the power before the root", "the first pair",
              waves_overflowing),
        Wrong("numbers", "sine for even rows, not columns", "the shape",
              waves_even_rows),
        Wrong("exponent-floored", "`2 * i // width`", "one pair", waves(
            power=lambda C: torch.arange(0, C, 2) // C)),
        Wrong("shape", "half the width: sine and cosine are added",
              "the length", waves(join=torch.add)),
        Wrong("type", "sine and cosine returned apart", "every number",
              lambda L, C: sinusoidal(L, C).chunk(2, -1)),
        Wrong("base-1000", "a zero was lost", "the first pair",
              waves(base=1e3)),
        Wrong("numbers", "another zero was added", "the first pair",
              waves(base=1e5)),
        Wrong("counted-from-one", "positions 1 to length", "most rows, one "
              "too late", lambda L, C: sinusoidal(L + 1, C)[1:]),
        Wrong("shape", "length + 1 rows, for padding", "every number",
              lambda L, C: sinusoidal(L + 1, C)),
        Wrong("shape", "width and length swapped", "the square ones",
              lambda L, C: sinusoidal(C, 2 * L)),
    ),
    "check_rotate": (
        *usual(checks.check_rotate),
        detached(checks.check_rotate.solution),
        Wrong("half-split", "columns i and i + D / 2, as Llama (rasbt/"
              "LLMs-from-scratch 746)", "one pair", llama),
        Wrong("half-split", "complex numbers of halves", "one pair",
              complex_halves),
        Wrong("half-split", "the other function of the chapter", "one pair",
              halves_in_neighbours_clothes),
        Wrong("pairings-mixed", "GPT-J's pairs with Llama's tables (the "
              "explanation in labml 265 pairs otherwise than its code)",
              "one pair", gptj_tables_for_halves),
        Wrong("identity", "nothing is turned (TorchCode and TorchLeet let it "
              "pass)", "position 0", lambda x, p, base=1e4: x.clone()),
        Wrong("base-10", "base 10 (TorchCode lets it pass)", "one pair",
              lambda x, p, base=1e4: rotate(x, p, 10.0)),
        Wrong("backwards", "opposite signs (TorchLeet lets them pass)",
              "lengths, and products of two", complex_conjugate),
        Wrong("offset-ignored", "`self.cos[:T]`, with a cache one step at a "
              "time from 0 (rasbt/LLMs-from-scratch 697)", "the first text",
              positions_of_a_table),
        Wrong("numbers", "positions scaled instead of frequencies (rasbt/"
              "LLMs-from-scratch 939)", "position 0",
              rotation(place=lambda p: p / 8)),
        Wrong("numbers", "positions beyond a limit are one (a sliding window "
              "whose pointer is not reset, rasbt/LLMs-from-scratch 925)",
              "a short text", rotation(place=lambda p: p.clamp(max=6))),
        Wrong("angles-in-half", "`positions.to(x.dtype)`", "single precision",
              half_tables),
        Wrong("dtype", "the tables are never cast", "single precision",
              angles_not_cast),
        Wrong("numbers", "in place, the second from the new first",
              "position 0", first_in_place),
        Wrong("changed-input", "in place, to save memory", "every number",
              written_over),
        Wrong("numbers", "half the columns only (rotary_pct)", "one pair",
              half_of_the_columns),
        Wrong("numbers", "along the heads", "one head at position 0",
              along_the_heads),
        Wrong("numbers", "the NTK-aware base, always", "the first pair", ntk),
        Wrong("numbers", "counted back from the last: products of two stay, "
              "rows do not", "one position", relative_to_the_last),
        Wrong("base-ignored", "10000 written into the formula",
              "the usual base", lambda x, p, base=1e4: rotate(x, p)),
        Wrong("numbers", "angles in degrees", "position 0",
              rotation(angle_of=torch.deg2rad)),
        Wrong("numbers", "2π · angle", "position 0",
              rotation(angle_of=lambda a: 2 * torch.pi * a)),
        Wrong("exponent-by-pair", "`arange(D // 2) / D`", "one pair",
              rotation(power=lambda D: torch.arange(D // 2) / D)),
        Wrong("one-frequency", "`2 * i // D`", "one pair",
              rotation(power=lambda D: torch.arange(0, D, 2) // D)),
        Wrong("numbers", "normalised as well", "unit vectors",
              lambda x, p, base=1e4: F.normalize(rotate(x, p, base), dim=-1)),
        Wrong("shape", "turned pairs as an axis of their own", "one batch",
              rotation(join=lambda a, b: torch.stack([a, b], -1))),
        Wrong("type", "cosine and sine of a cache returned with it",
              "every number",
              lambda x, p, base=1e4: (rotate(x, p, base), p)),
        Wrong("concatenated", "cat for stack at the end", "one pair",
              rotation(join=lambda a, b: torch.cat([a, b], -1))),
    ),
    "check_alibi": (
        *usual(checks.check_alibi),
        Wrong("sign", "+ slope · distance", "one key",
              lambda H, T, S: alibi(H, T, S).neg()),
        Wrong("sign", "- slope · s: far keys of the past are favoured",
              "one key", counted_by_key),
        Wrong("top-left", "`arange(T)` and `arange(S)` (pytorch 103082, "
              "108108, 126873)", "T = S", lambda H, T, S: -slopes_of(H)[
                  :, None, None] * (torch.arange(T)[:, None]
                                    - torch.arange(S)).abs()),
        Wrong("numbers", "a causal mask with it, from the top left",
              "T = S", with_a_causal_mask_top_left),
        Wrong("zero", "a causal mask and nothing else", "one key",
              mask_alone),
        Wrong("numbers", "1, 1/2, 1/4, ... for any number of heads",
              "one key", penalty(lambda H: 0.5 ** torch.arange(H))),
        Wrong("shape", "no rows: (H, 1, S) would broadcast", "one query",
              without_rows),
        Wrong("numbers", "the mean of both ends, for all rows", "one key",
              lambda H, T, S: penalty(shape=lambda away: -away.abs())(
                  H, S, S).mean(1, keepdim=True).expand(H, T, S)),
        Wrong("slopes-of-8-heads", "1/2, 1/4, 1/8, ... (the paper's example)",
              "8 heads", penalty(lambda H: 0.5 ** torch.arange(1, H + 1))),
        Wrong("numbers", "2^(-8 / h)", "one head",
              penalty(lambda H: 2.0 ** (-8 / torch.arange(1, H + 1)))),
        Wrong("numbers", "2^(-h / H): the 8 is forgotten", "no bias at 0",
              penalty(lambda H: 2.0 ** (-torch.arange(1, H + 1) / H))),
        Wrong("numbers", "e for 2", "no bias at 0",
              penalty(lambda H: slopes_of(H).log2().exp())),
        Wrong("slopes-from-one", "`range(H)` for `range(1, H + 1)`",
              "the ratio of slopes",
              penalty(lambda H: 2.0 ** (-8 * torch.arange(H) / H))),
        Wrong("numbers", "divided by √H", "one head",
              lambda H, T, S: alibi(H, T, S) / max(H, 2) ** 0.5),
        Wrong("numbers", "clipped at 2 steps", "a short text",
              penalty(shape=lambda away: -away.clamp(max=2))),
        Wrong("numbers", "one more head than there is, the first left out",
              "the shape", penalty(lambda H: slopes_of(H + 1)[1:])),
        Wrong("nan", "-inf times a distance of 0", "no number at all",
              penalty(shape=lambda away: -torch.inf * away.float())),
        Wrong("dtype", "slopes as whole numbers", "nothing", lambda H, T, S:
              alibi(H, T, S).long()),
        Wrong("dtype", "half precision throughout", "small numbers",
              lambda H, T, S: alibi(H, T, S).half()),
        Wrong("shape", "one head for all", "one head",
              lambda H, T, S: alibi(H, T, S).mean(0)),
        Wrong("shape", "always square", "T = S",
              lambda H, T, S: alibi(H, S, S)),
        Wrong("type", "slopes and distances apart", "every number",
              lambda H, T, S: (slopes_of(H), alibi(1, T, S))),
    ),
    "check_relative_bias": (
        *usual(checks.check_relative_bias),
        detached(checks.check_relative_bias.solution),
        single(checks.check_relative_bias.solution),
        Wrong("index-transposed", "the bias is transposed at the end",
              "the diagonal", transposed_table),
        Wrong("index-transposed", "the table is read backwards",
              "the diagonal", flipped_table),
        Wrong("no-clip", "the distance as it is", "keys within reach",
              lambda table, T, S: table[:, torch.arange(S) - torch.arange(T)[
                  :, None] + table.shape[-1] // 2]),
        Wrong("wrapped", "`%` to silence the IndexError", "keys within reach",
              looked_up(lambda away, reach: torch.remainder(
                  away + reach, 2 * reach + 1))),
        Wrong("no-offset", "`+ reach` forgotten: Python counts from the end",
              "nothing", looked_up(lambda away, reach: torch.clip(
                  away, -reach, reach))),
        Wrong("numbers", "the number of columns taken for reach",
              "keys within reach", reach_of_all_columns),
        Wrong("zero-beyond", "a one-hot of the distance", "keys within reach",
              zeros_outside),
        Wrong("numbers", "one position off", "far keys", nearest_key_is_next),
        Wrong("detached", "through a list of numbers", "every number",
              through_numbers),
        Wrong("heads-last", "the table's axes as in Swin", "every number",
              swin),
        Wrong("numbers", "T5's logarithm, in part", "a distance of 0 and 1",
              logarithmic),
        Wrong("symmetric", "`.abs()`", "keys after the query",
              looked_up(lambda away, reach: away.abs().clamp(max=reach)
                        + reach)),
        Wrong("numbers", "`.abs()` without an offset", "the shape",
              looked_up(lambda away, reach: away.abs().clamp(max=reach))),
        Wrong("past-only", "a causal model in mind", "keys of the past",
              looked_up(lambda away, reach: away.clamp(-reach, 0) + reach)),
        Wrong("shape", "a row of the table for each query", "the heads",
              lambda table, T, S: table[:, None].repeat(1, T, 1)[..., :1]
              .expand(-1, T, T + 1)),
        Wrong("numbers", "the mean of the table for far keys",
              "keys within reach", lambda table, T, S: relative_bias(
                  table, T, S).where(
                      (torch.arange(S) - torch.arange(T)[:, None]).abs()
                      <= table.shape[-1] // 2,
                      table.mean(-1)[:, None, None])),
        Wrong("numbers", "a causal mask is already in it", "the past",
              lambda table, T, S: relative_bias(table, T, S).masked_fill(
                  torch.ones(T, S, dtype=torch.bool).triu(1), -torch.inf)),
        Wrong("first-head-only", "`table[0]` for all", "one head",
              lambda table, T, S: relative_bias(table[:1], T, S).expand(
                  len(table), T, S)),
        Wrong("shape", "one head alone", "one head",
              lambda table, T, S: relative_bias(table, T, S)[0]),
        Wrong("type", "a NumPy array comes back", "every number",
              lambda table, T, S: np.asarray(
                  relative_bias(table.detach(), T, S))),
    ),
}  # fmt: skip
