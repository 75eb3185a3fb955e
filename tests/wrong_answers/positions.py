"""Wrong answers to the exercises of chapters/08_positions."""

import math

import numpy as np
import torch
from torch.nn import functional as F

from attnbook.exercises import positions as checks
from attnbook.exercises.edit import edit_solution
from attnbook.exercises.positions.alibi import alibi
from attnbook.exercises.positions.rotate import rotate
from attnbook.exercises.positions.sinusoidal import interleave, sinusoidal
from attnbook.positions import biases
from wrong_answers import Wrong, make
from wrong_answers.make import Answers, collect_answers

# What is right, to be spoilt.
relative_bias = edit_solution(biases.relative_bias)


def slopes_of(heads):
    return 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)


SINUSOIDAL = Answers(checks.check_sinusoidal)
SINUSOIDAL += (
    Wrong("shape", "half the width: sine and cosine are added",
          "the length", edit_solution(
              sinusoidal, "return torch.stack([ → return sum([",
              ", dim=-1).flatten(1) → )")),
    Wrong("type", "sine and cosine returned apart", "every number",
          lambda L, C: sinusoidal(L, C).chunk(2, -1)),
    Wrong("numbers", "another zero was added", "the first pair",
          edit_solution(sinusoidal, "10000.0 → 100000.0")),
    Wrong("shape", "length + 1 rows, for padding", "every number",
          lambda L, C: sinusoidal(L + 1, C)),
    Wrong("shape", "width and length swapped", "the square ones",
          lambda L, C: sinusoidal(C, 2 * L)),
)  # fmt: skip


@SINUSOIDAL.wrong("numbers", "one pair")
def waves_fairseq(length, width):
    """Halves, and a spread that ends at the last pair (fairseq, T2T)."""
    half = width // 2
    steps = torch.exp(torch.arange(half) * -(math.log(10000.0) / max(half - 1, 1)))
    angle = torch.arange(length)[:, None] * steps
    return torch.cat([angle.sin(), angle.cos()], dim=1)


@SINUSOIDAL.wrong("numbers", "one pair")
def waves_loop_with_2i(length, width):
    """`i` already goes in steps of two, and is doubled once more."""
    table = torch.zeros(length, width)
    for p in range(length):
        for i in range(0, width, 2):
            table[p, i] = math.sin(p / 10000 ** (2 * i / width))
            table[p, i + 1] = math.cos(p / 10000 ** (2 * i / width))
    return table


@SINUSOIDAL.wrong("numbers", "position 0")
def waves_precedence(length, width):
    """`10000 ** 2 * i / width`: the power binds first."""
    steps = 10000.0**2 * torch.arange(width // 2) / width
    angle = torch.arange(length)[:, None] / steps.clamp(min=1)
    return interleave(angle.sin(), angle.cos())


@SINUSOIDAL.wrong("dtype", "position 0")
def waves_annotated_half(length, width):
    """The loop of the Annotated Transformer, in half precision throughout."""
    table = torch.zeros(length, width, dtype=torch.float16)
    steps = torch.exp(torch.arange(0, width, 2).half() * -(math.log(10000.0) / width))
    at = torch.arange(length).half()[:, None]
    table[:, 0::2] = torch.sin(at * steps)
    table[:, 1::2] = torch.cos(at * steps)
    return table


@SINUSOIDAL.wrong("numbers", "the zeros")
def waves_scaled(length, width):
    """Divided by √width."""
    return sinusoidal(length, width) / math.sqrt(width)


@SINUSOIDAL.wrong("numbers", "the shape")
def waves_learned(length, width):
    """A learned table instead."""
    torch.manual_seed(0)
    return torch.nn.Embedding(length, width).weight.detach()


@SINUSOIDAL.wrong("numbers", "position 0")
def waves_squeezed(length, width):
    """Positions from 0 to 1, whatever the length."""
    angle = torch.linspace(0, 1, length)[:, None] * 10000.0 ** -(
        torch.arange(0, width, 2) / width
    )
    return interleave(angle.sin(), angle.cos())


@SINUSOIDAL.wrong("numbers", "the first pair")
def waves_overflowing(length, width):
    """10000^(2i) first, then the root: it overflows."""
    powers = torch.tensor(10000.0) ** torch.arange(0, width, 2)
    angle = torch.arange(length)[:, None] / powers * width
    return interleave(angle.sin(), angle.cos())


@SINUSOIDAL.wrong("numbers", "the shape")
def waves_even_rows(length, width):
    """Sine at even positions, cosine at odd ones."""
    steps = 10000.0 ** -(torch.arange(0, width, 2) / width)
    angle = (torch.arange(length)[:, None] * steps).repeat_interleave(2, dim=1)
    odd = torch.arange(length)[:, None] % 2 == 1
    return torch.where(odd, angle.cos(), angle.sin())


ROTATE = Answers(checks.check_rotate, make.detached)
ROTATE += (
    Wrong("numbers", "positions scaled instead of frequencies (rasbt/"
          "LLMs-from-scratch 939)", "position 0",
          edit_solution(rotate, "positions[:, None] → positions[:, None] / 8")),
    Wrong("numbers", "positions beyond a limit are one (a sliding window "
          "whose pointer is not reset, rasbt/LLMs-from-scratch 925)",
          "a short text", edit_solution(
              rotate, "positions[:, None] → positions[:, None].clamp(max=6)")),
    Wrong("numbers", "angles in degrees", "position 0",
          edit_solution(rotate, "* steps → * steps * torch.pi / 180")),
    Wrong("numbers", "2π · angle", "position 0",
          edit_solution(rotate, "* steps → * steps * 2 * torch.pi")),
    Wrong("numbers", "normalised as well", "unit vectors",
          lambda x, p, base=1e4: F.normalize(rotate(x, p, base), dim=-1)),
    Wrong("shape", "turned pairs as an axis of their own", "one batch",
          edit_solution(rotate, ".flatten(-2) → ")),
    Wrong("type", "cosine and sine of a cache returned with it",
          "every number",
          lambda x, p, base=1e4: (rotate(x, p, base), p)),
)  # fmt: skip


@ROTATE.wrong("half-split", "one pair")
def llama(x, positions, base=10000.0):
    """Columns i and i + D / 2, as Llama (rasbt/LLMs-from-scratch 746)."""
    D = x.shape[-1]
    steps = 1.0 / base ** (torch.arange(0, D, 2).float() / D)
    table = torch.cat([positions[:, None] * steps] * 2, dim=-1)
    half = torch.cat([-x[..., D // 2 :], x[..., : D // 2]], dim=-1)
    return x * table.cos().to(x.dtype) + half * table.sin().to(x.dtype)


@ROTATE.wrong("backwards", "lengths, and products of two")
def complex_conjugate(x, positions, base=10000.0):
    """Opposite signs (TorchLeet lets them pass)."""
    D = x.shape[-1]
    steps = base ** -(torch.arange(0, D, 2, dtype=torch.float64) / D)
    angle = -positions[:, None] * steps
    unit = torch.polar(torch.ones_like(angle), angle)
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * unit).flatten(-2).to(x.dtype)


@ROTATE.wrong("dtype", "single precision")
def angles_not_cast(x, positions, base=10000.0):
    """The tables stay in single precision and lift `x` to it."""
    D = x.shape[-1]
    angle = positions[:, None] * base ** -(torch.arange(0, D, 2) / D)
    even, odd = x[..., ::2], x[..., 1::2]
    return interleave(
        even * angle.cos() - odd * angle.sin(),
        even * angle.sin() + odd * angle.cos(),
    )


@ROTATE.wrong("numbers", "position 0")
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


@ROTATE.wrong("changed-input", "every number")
def written_over(x, positions, base=10000.0):
    """In place, to save memory."""
    return x.copy_(rotate(x, positions, base))


@ROTATE.wrong("numbers", "one pair")
def half_of_the_columns(x, positions, base=10000.0):
    """Half the columns only (rotary_pct)."""
    cut = max(x.shape[-1] // 4 * 2, 2)
    turned = rotate(x[..., :cut], positions, base)
    return torch.cat([turned, x[..., cut:]], dim=-1)


@ROTATE.wrong("numbers", "one head at position 0")
def along_the_heads(x, positions, base=10000.0):
    """Each head is turned by its own number, each position by none."""
    heads = torch.arange(x.shape[1])
    return rotate(x.transpose(1, 2), heads, base).transpose(1, 2)


@ROTATE.wrong("numbers", "the first pair")
def ntk(x, positions, base=10000.0):
    """The NTK-aware base, for a text twice as long."""
    D = x.shape[-1]
    return rotate(x, positions, base * 2 ** (D / max(D - 2, 1)))


@ROTATE.wrong("numbers", "one position")
def relative_to_the_last(x, positions, base=10000.0):
    """Counted back from the last: products of two stay, rows do not."""
    return rotate(x, positions - positions[-1], base)


ALIBI = Answers(checks.check_alibi)
ALIBI += (
    Wrong("numbers", "1, 1/2, 1/4, ... for any number of heads",
          "one key", edit_solution(
              alibi, "-8.0 * torch.arange(1, heads + 1) / heads "
              "→ -torch.arange(heads)")),
    Wrong("numbers", "the mean of both ends, for all rows", "one key",
          lambda H, T, S: -alibi(H, S, S).abs().mean(1, True).expand(H, T, S)),
    Wrong("numbers", "2^(-8 / h)", "one head",
          edit_solution(
              alibi, "-8.0 * torch.arange(1, heads + 1) / heads "
              "→ -8 / torch.arange(1, heads + 1)")),
    Wrong("numbers", "2^(-h / H): the 8 is forgotten", "no bias at 0",
          edit_solution(alibi, "-8.0 * → -1.0 *")),
    Wrong("numbers", "e for 2", "no bias at 0",
          edit_solution(alibi, "2.0 ** (-8.0 → torch.e ** (-8.0")),
    Wrong("numbers", "divided by √H", "one head",
          lambda H, T, S: alibi(H, T, S) / max(H, 2) ** 0.5),
    Wrong("numbers", "clipped at 2 steps", "a short text",
          edit_solution(alibi, "* (t - torch.arange(keys)) "
                 "→ * (t - torch.arange(keys)).clamp(max=2)")),
    Wrong("numbers", "one more head than there is, the first left out",
          "the shape", edit_solution(
              alibi, "(1, heads + 1) / heads → (2, heads + 2) / (heads + 1)")),
    Wrong("nan", "-inf times a distance of 0", "no number at all",
          edit_solution(alibi, "return - → return -torch.inf * ")),
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
)  # fmt: skip


@ALIBI.wrong("sign", "one key")
def counted_by_key(heads, T, S):
    """-slope · s: a constant of the row away from the opposite sign."""
    slopes = slopes_of(heads)[:, None, None]
    return (-slopes * torch.arange(S)).expand(heads, T, S)


@ALIBI.wrong("numbers", "T = S")
def with_a_causal_mask_top_left(heads, T, S):
    """A causal mask with it, from the top left."""
    seen = torch.ones(T, S, dtype=torch.bool).tril()
    return alibi(heads, T, S).masked_fill(~seen, -torch.inf)


@ALIBI.wrong("shape", "one query")
def without_rows(heads, T, S):
    """No rows: (H, 1, S) would broadcast."""
    return (slopes_of(heads)[:, None, None] * torch.arange(S)).clone()


RELATIVE_BIAS = Answers(checks.check_relative_bias, make.detached, make.in_double)
RELATIVE_BIAS += (
    Wrong("numbers", "`.abs()` without an offset", "the shape",
          edit_solution(biases.relative_bias, "clamp(-reach, reach) + reach "
                        "→ abs().clamp(max=reach)")),
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
    Wrong("shape", "one head alone", "one head",
          lambda table, T, S: relative_bias(table, T, S)[0]),
    Wrong("type", "a NumPy array comes back", "every number",
          lambda table, T, S: np.asarray(
              relative_bias(table.detach(), T, S))),
)  # fmt: skip


@RELATIVE_BIAS.wrong("numbers", "keys within reach")
def reach_of_all_columns(table, T, S):
    """The number of columns taken for reach."""
    columns = table.shape[-1]
    away = torch.arange(S) - torch.arange(T)[:, None]
    return table[:, (away + columns // 2).clamp(1 - columns, columns - 1)]


@RELATIVE_BIAS.wrong("zero-beyond", "keys within reach")
def zeros_outside(table, T, S):
    """A one-hot of the distance: far ones have no 1."""
    columns = table.shape[-1]
    away = torch.arange(S) - torch.arange(T)[:, None] + columns // 2
    hot = (away[..., None] == torch.arange(columns)).to(table.dtype)
    return torch.einsum("tsr,hr->hts", hot, table)


@RELATIVE_BIAS.wrong("numbers", "far keys")
def nearest_key_is_next(table, T, S):
    """One position off."""
    away = torch.arange(S) - torch.arange(T)[:, None] - 1
    reach = table.shape[-1] // 2
    return table[:, away.clamp(-reach, reach) + reach]


@RELATIVE_BIAS.wrong("detached", "every number")
def through_numbers(table, T, S):
    """Through a list of numbers."""
    return torch.tensor(relative_bias(table, T, S).tolist(), dtype=table.dtype)


@RELATIVE_BIAS.wrong("numbers", "a distance of 0 and 1")
def logarithmic(table, T, S):
    """T5's logarithm, in part."""
    away = torch.arange(S) - torch.arange(T)[:, None]
    near = away.sign() * away.abs().float().log1p().long()
    reach = table.shape[-1] // 2
    return table[:, near.clamp(-reach, reach) + reach]


NEW_ANGLES = Answers(checks.check_new_angles)


@NEW_ANGLES.wrong("numbers", "interpolation and NTK-aware scaling")
def angles_with_the_last_position(D, base, L, s):
    """The slowest pair is left out, because its exponent is taken for 1."""
    complete, slow, *rest = checks.check_new_angles.solution(D, base, L, s)
    return [complete + 1, slow - 1, *rest]


@NEW_ANGLES.wrong("numbers", "pairs, and nothing changed")
def angles_with_yarn(D, base, L, s):
    """YaRN is taken for NTK-aware scaling: it brings no new angles."""
    complete, slow, *_ = checks.check_new_angles.solution(D, base, L, s)
    return [complete, slow, complete, 0]


@NEW_ANGLES.wrong("type", "every number")
def angles_as_dictionary(D, base, L, s):
    """The counts have names."""
    names = "complete", "unchanged", "interpolated", "ntk"
    counts = checks.check_new_angles.solution(D, base, L, s)
    return dict(zip(names, counts, strict=True))


@NEW_ANGLES.wrong("numbers", "every number, elsewhere")
def angles_in_reverse(D, base, L, s):
    """The counts are in reverse order."""
    return checks.check_new_angles.solution(D, base, L, s)[::-1]


@NEW_ANGLES.wrong("error", "nothing")
def angles_of_a_tensor(D, base, L, s):
    """A list is raised to a power."""
    return L * base ** [-2 * i / D for i in range(D // 2)]


ROTARY_FAULT = Answers(checks.check_rotary_fault, *make.DECISION)


@ROTARY_FAULT.wrong("numbers", "every other fault")
def fault_without_ignored(scores, D):
    """Ignored positions look like a right implementation at distance 0."""
    found = checks.check_rotary_fault.solution(scores, D)
    return found if found < 5 else 0


@ROTARY_FAULT.wrong("error", "nothing")
def fault_with_four_axes(scores, D):
    """Batch and heads are added."""
    x = torch.randn(1, 1, 3, D)
    return int(scores(x, x, torch.arange(3), torch.arange(3))[0, 0, 0, 0] > 0)


@ROTARY_FAULT.wrong("numbers", "faults 3 and 4")
def fault_one_side_is_opposite(scores, D):
    """A key that is not rotated counts as rotated the other way."""
    found = checks.check_rotary_fault.solution(scores, D)
    return 2 if found == 1 else found


POSITION_USE = Answers(checks.check_position_use, *make.DECISION)


@POSITION_USE.wrong("error", "nothing")
def use_of_shorter_positions(head, words, positions):
    """A word is removed, but not its position."""
    return int(head(words[1:], positions).argmax())


@POSITION_USE.wrong("numbers", "nothing, but it is one of the rows")
def use_is_the_key(head, words, positions):
    """The attended row is returned instead of the explanation."""
    return int(head(words, positions).argmax())


@POSITION_USE.wrong("numbers", "rows and words")
def use_distance_as_position(head, words, positions):
    """Whatever depends on positions counts as absolute."""
    found = checks.check_position_use.solution(head, words, positions)
    return found or 1


ANSWERS = collect_answers(checks, vars())
