"""Right answers to the exercises of chapters/08_positions."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from attnbook.positions import rotary

# Waves


def waves_by_loop(length, width):
    table = torch.zeros(length, width)
    for p in range(length):
        for i in range(width // 2):
            angle = p / 10000 ** (2 * i / width)
            table[p, 2 * i] = math.sin(angle)
            table[p, 2 * i + 1] = math.cos(angle)
    return table


def waves_annotated(length, width):
    """In the manner of the Annotated Transformer."""
    table = torch.zeros(length, width)
    at = torch.arange(length).unsqueeze(1)
    steps = torch.exp(torch.arange(0, width, 2) * -(math.log(1e4) / width))
    table[:, 0::2] = torch.sin(at * steps)
    table[:, 1::2] = torch.cos(at * steps)
    return table


def waves_of_complex_numbers(length, width):
    steps = 1e4 ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
    angle = torch.outer(torch.arange(length).double(), steps)
    unit = torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(unit).flip(-1).flatten(1).float()


def waves_by_phase(length, width):
    """A cosine is a sine a quarter of a turn ahead."""
    column = torch.arange(width)
    steps = 10000.0 ** -(2 * (column // 2) / width).double()
    angle = torch.arange(length)[:, None] * steps
    return torch.sin(angle + torch.pi / 2 * (column % 2)).float()


def waves_by_turning(length, width):
    """Each row is the one before, turned."""
    steps = 10000.0 ** -(torch.arange(0, width, 2).double() / width)
    sine, cosine = steps.sin(), steps.cos()
    block = torch.stack([cosine, sine, -sine, cosine], dim=-1)
    turn = torch.block_diag(*block.reshape(-1, 2, 2))
    row = torch.tensor([0.0, 1.0] * (width // 2), dtype=torch.float64)
    rows = []
    for _ in range(length):
        rows.append(row)
        row = turn @ row
    return torch.stack(rows).float()


def waves_by_numpy(length, width):
    angle = np.arange(length)[:, None] / 1e4 ** (np.arange(0, width, 2) / width)
    table = np.empty((length, width), dtype=np.float32)
    table[:, 0::2], table[:, 1::2] = np.sin(angle), np.cos(angle)
    return torch.from_numpy(table)


# Rotation


def by_pairs(x, positions, base=10000.0):
    D = x.shape[-1]
    out = torch.empty_like(x)
    for i in range(D // 2):
        angle = positions.double() / base ** (2 * i / D)
        sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
        a, b = x[..., 2 * i], x[..., 2 * i + 1]
        out[..., 2 * i] = a * cosine - b * sine
        out[..., 2 * i + 1] = a * sine + b * cosine
    return out


def by_complex_numbers(x, positions, base=10000.0):
    """In the manner of Meta's Llama: the numbers are single precision."""
    D = x.shape[-1]
    steps = 1.0 / (base ** (torch.arange(0, D, 2).float() / D))
    angle = torch.outer(positions.float(), steps)
    unit = torch.polar(torch.ones_like(angle), angle)
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * unit).flatten(-2).type_as(x)


def by_matrices(x, positions, base=10000.0):
    D = x.shape[-1]
    steps = base ** -(torch.arange(0, D, 2, dtype=torch.float64) / D)
    blocks = []
    for p in positions.tolist():
        s, c = (p * steps).sin(), (p * steps).cos()
        turn = torch.stack(
            [torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2
        )
        blocks.append(torch.block_diag(*turn))
    turn = torch.stack(blocks)
    return torch.einsum("tij,bhtj->bhti", turn, x.double()).to(x.dtype)


def through_halves(x, positions, base=10000.0):
    """The other pairing, between two changes of order."""
    order = rotary.halves_permutation(x.shape[-1])
    turned = rotary.rotate_halves(x[..., order], positions, base)
    return turned[..., order.argsort()]


def every_two(x, positions, base=10000.0):
    """In the manner of GPT-J: tables in turns, and `rotate_every_two`."""
    D = x.shape[-1]
    steps = 1.0 / base ** (torch.arange(0, D, 2) / D)
    angle = (positions[:, None] * steps).repeat_interleave(2, dim=-1)
    two = torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).flatten(-2)
    return x * angle.cos().to(x.dtype) + two * angle.sin().to(x.dtype)


class Table(nn.Module):
    """Sines and cosines in a table, looked up by position."""

    def forward(self, x, positions, base=10000.0):
        D, longest = x.shape[-1], int(positions.max()) + 1
        steps = torch.pow(base, -torch.arange(0, D, 2) / D)
        angle = torch.arange(longest)[:, None] * steps
        table = torch.stack([angle.cos(), angle.sin()], dim=-1)
        cosine, sine = table[positions].to(x.dtype).unbind(-1)
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
        first, second = even * cosine - odd * sine, odd * cosine + even * sine
        return torch.stack((first, second), -1).reshape(x.shape)


# ALiBi


def by_loops(heads, T, S):
    bias = torch.zeros(heads, T, S)
    for h in range(heads):
        slope = 2 ** (-8 * (h + 1) / heads)
        for t in range(T):
            for s in range(S):
                bias[h, t, s] = -slope * (t + S - T - s)
    return bias


def slopes(heads):
    """The released code's: a ratio, and its powers."""
    start = 2 ** (-(2 ** -(math.log2(heads) - 3)))
    return torch.tensor([start ** (i + 1) for i in range(heads)])


def growing_along_keys(heads, T, S):
    """slope · s, as in the released code: a row's constant away."""
    return (slopes(heads)[:, None, None] * torch.arange(S)).repeat(1, T, 1)


def from_the_first_query(heads, T, S):
    """Counted from the top left, but in a straight line: no matter."""
    away = torch.arange(T)[:, None] - torch.arange(S)
    return -slopes(heads)[:, None, None] * away


def with_a_mask(heads, T, S):
    away = torch.arange(S - T, S)[:, None] - torch.arange(S)
    bias = -slopes(heads).view(-1, 1, 1) * away.float()
    return bias.masked_fill(away < 0, float("-inf"))


def anything_after_the_query(heads, T, S):
    away = torch.arange(S - T, S)[:, None] - torch.arange(S)
    bias = -slopes(heads).view(-1, 1, 1) * away
    return torch.where(away < 0, torch.tensor(float("nan")), bias)


def shifted_weights(heads, T, S):
    """The logarithm of the weights that are asked for."""
    return growing_along_keys(heads, T, S).log_softmax(-1)


# A table of distances


def table_by_loops(table, T, S):
    reach = (table.shape[1] - 1) // 2
    rows = [
        torch.stack(
            [table[:, min(max(s - t, -reach), reach) + reach] for s in range(S)]
        )
        for t in range(T)
    ]
    return torch.stack(rows).permute(2, 0, 1)


def table_by_gather(table, T, S):
    reach = table.shape[-1] // 2
    away = torch.arange(S)[None] - torch.arange(T)[:, None]
    index = torch.clip(away, -reach, reach) + reach
    return table.gather(1, index.reshape(1, -1).expand(len(table), -1)).view(
        -1, T, S
    )


def table_by_embedding(table, T, S):
    reach = table.shape[-1] // 2
    away = torch.arange(S) - torch.arange(T).unsqueeze(1)
    index = (away + reach).clamp(0, 2 * reach)
    return F.embedding(index, table.T).permute(2, 0, 1)


def table_by_one_hot(table, T, S):
    reach = table.shape[-1] // 2
    away = torch.arange(S) - torch.arange(T)[:, None]
    hot = F.one_hot(away.clamp(-reach, reach) + reach, table.shape[-1])
    return torch.einsum("tsr,hr->hts", hot.to(table.dtype), table)


def table_by_unfolding(table, T, S):
    """Padded at both ends with the last entries; each row is a slice."""
    reach = table.shape[-1] // 2
    left = table[:, :1].expand(-1, T)
    right = table[:, -1:].expand(-1, S)
    long = torch.cat([left, table, right], dim=1)
    return torch.stack(
        [long[:, T + reach - t : T + reach - t + S] for t in range(T)], dim=1
    )


def table_by_index_select(table, T, S):
    reach = table.shape[-1] // 2
    away = torch.arange(S).expand(T, S) - torch.arange(T).expand(S, T).T
    index = away.clamp(min=-reach).clamp(max=reach) + reach
    return table.index_select(1, index.flatten()).unflatten(1, (T, S))


ANSWERS = {
    "check_sinusoidal": (
        ("loops", waves_by_loop),
        ("slices and exp", waves_annotated),
        ("complex numbers", waves_of_complex_numbers),
        ("a phase", waves_by_phase),
        ("turned from row to row", waves_by_turning),
        ("NumPy", waves_by_numpy),
    ),
    "check_rotate": (
        ("pair by pair", by_pairs),
        ("complex numbers", by_complex_numbers),
        ("matrices", by_matrices),
        ("through the other pairing", through_halves),
        ("every two", every_two),
        ("a table, in a module", Table()),
    ),
    "check_alibi": (
        ("loops", by_loops),
        ("slope times key", growing_along_keys),
        ("from the top left, straight", from_the_first_query),
        ("with the causal mask", with_a_mask),
        ("NaN after the query", anything_after_the_query),
        ("shifted by the logarithm of the sum", shifted_weights),
    ),
    "check_relative_bias": (
        ("loops", table_by_loops),
        ("gather", table_by_gather),
        ("an embedding", table_by_embedding),
        ("one hot", table_by_one_hot),
        ("slices of a padded table", table_by_unfolding),
        ("index_select", table_by_index_select),
    ),
}
