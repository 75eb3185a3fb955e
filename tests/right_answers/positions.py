"""Right answers to the exercises of chapters/08_positions."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from attnbook.positions import rotary
from right_answers import collect_answers

# Waves


def waves_by_loop(length, width):
    table = torch.zeros(length, width)
    for p in range(length):
        for i in range(width // 2):
            angle = p / 10000 ** (2 * i / width)
            table[p, 2 * i] = math.sin(angle)
            table[p, 2 * i + 1] = math.cos(angle)
    return table


def waves_by_slices_and_exp(length, width):
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


def waves_turned_from_row_to_row(length, width):
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


def rotate_by_pairs(x, positions, base=10000.0):
    D = x.shape[-1]
    out = torch.empty_like(x)
    for i in range(D // 2):
        angle = positions.double() / base ** (2 * i / D)
        sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
        a, b = x[..., 2 * i], x[..., 2 * i + 1]
        out[..., 2 * i] = a * cosine - b * sine
        out[..., 2 * i + 1] = a * sine + b * cosine
    return out


def rotate_by_complex_numbers(x, positions, base=10000.0):
    """In the manner of Meta's Llama: the numbers are single precision."""
    D = x.shape[-1]
    steps = 1.0 / (base ** (torch.arange(0, D, 2).float() / D))
    angle = torch.outer(positions.float(), steps)
    unit = torch.polar(torch.ones_like(angle), angle)
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * unit).flatten(-2).type_as(x)


def rotate_by_matrices(x, positions, base=10000.0):
    D = x.shape[-1]
    steps = base ** -(torch.arange(0, D, 2, dtype=torch.float64) / D)
    blocks = []
    for p in positions.tolist():
        s, c = (p * steps).sin(), (p * steps).cos()
        turn = torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2)
        blocks.append(torch.block_diag(*turn))
    turn = torch.stack(blocks)
    return torch.einsum("tij,bhtj->bhti", turn, x.double()).to(x.dtype)


def rotate_through_the_other_pairing(x, positions, base=10000.0):
    """The other pairing, between two changes of order."""
    order = rotary.halves_permutation(x.shape[-1])
    turned = rotary.rotate_halves(x[..., order], positions, base)
    return turned[..., order.argsort()]


def rotate_every_two(x, positions, base=10000.0):
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


def alibi_by_loops(heads, T, S):
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


def alibi_as_slope_times_key(heads, T, S):
    """slope · s, as in the released code: a row's constant away."""
    return (slopes(heads)[:, None, None] * torch.arange(S)).repeat(1, T, 1)


def alibi_from_the_top_left(heads, T, S):
    """Counted from the top left, but in a straight line: no matter."""
    away = torch.arange(T)[:, None] - torch.arange(S)
    return -slopes(heads)[:, None, None] * away


def alibi_with_the_causal_mask(heads, T, S):
    away = torch.arange(S - T, S)[:, None] - torch.arange(S)
    bias = -slopes(heads).view(-1, 1, 1) * away.float()
    return bias.masked_fill(away < 0, float("-inf"))


def alibi_with_nan_after_the_query(heads, T, S):
    away = torch.arange(S - T, S)[:, None] - torch.arange(S)
    bias = -slopes(heads).view(-1, 1, 1) * away
    return torch.where(away < 0, torch.tensor(float("nan")), bias)


def alibi_shifted_by_the_log_of_the_sum(heads, T, S):
    """The logarithm of the weights that are asked for."""
    return alibi_as_slope_times_key(heads, T, S).log_softmax(-1)


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
    return table.gather(1, index.reshape(1, -1).expand(len(table), -1)).view(-1, T, S)


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


def table_by_slices_of_a_padded_table(table, T, S):
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


def angles_by_wavelength(D, base, L, s):
    """A pair is complete if its wavelength fits into L."""
    lengths = [2 * math.pi * base ** (2 * i / D) for i in range(D // 2)]
    slow = [x for x in lengths if x > L]
    return [len(lengths) - len(slow), len(slow), 0, len(slow[:-1])]


def angles_by_the_definition(D, base, L, s):
    """The largest angles are computed and compared, as the text defines."""
    pairs = torch.arange(0, D, 2, dtype=torch.double) / D
    theta = base**-pairs
    larger = base * s ** (D / (D - 2))
    ways = theta, theta / s, larger**-pairs
    trained = L * theta
    known = trained >= 2 * math.pi
    new = [(~known & (s * L * way > 1.001 * trained)).sum() for way in ways]
    return [int(known.sum()), *map(int, new)]


def angles_with_numpy(D, base, L, s):
    """numpy counts, and its integers are handed back."""
    rotations = L * np.power(float(base), -np.arange(0, D, 2) / D) / (2 * np.pi)
    slow = int((rotations < 1).sum())
    return [int((rotations >= 1).sum()), slow, 0, slow - 1 if slow else 0]


def angles_by_logarithm(D, base, L, s):
    """Solved for i: complete up to D / 2 · log(L / 2π) / log(base)."""
    limit = D / 2 * math.log(L / (2 * math.pi)) / math.log(base)
    complete = min(max(math.floor(limit) + 1, 0), D // 2)
    slow = D // 2 - complete
    return [complete, slow, 0, slow - (slow > 0)]


def angles_by_loop(D, base, L, s):
    """One pair after the other."""
    counts = [0, 0, 0, 0]
    for i in range(D // 2):
        if L / base ** (2 * i / D) >= 2 * math.pi:
            counts[0] += 1
        else:
            counts[1] += 1
            counts[3] += i < D // 2 - 1
    return counts


def one_score(scores, D, t, s, query, key):
    """Return one score."""
    places = torch.tensor([t]), torch.tensor([s])
    return scores(query.view(1, D), key.view(1, D), *places).item()


def rotary_by_unit_vectors(scores, D):
    """The rotation matrix is read off, entry by entry."""
    one, other = torch.eye(D)[:2]

    def entry(t, s):
        return one_score(scores, D, t, s, one, one)

    def near(a, b):
        return abs(a - b) < 1e-2

    if near(entry(1, 0), 1) and near(entry(0, 1), 1):
        return 5
    if near(entry(1, 0), 1) or near(entry(0, 1), 1):
        return 1
    if near(entry(1, 1), math.cos(2)):
        return 2
    if near(one_score(scores, D, 1, 0, one, other), 0):
        return 3
    late = [near(entry(t, 0), math.cos(t)) for t in (1000, 1001, 1002)]
    return 0 if all(late) else 4


def rotary_by_simulation(scores, D):
    """Every fault is built with complex numbers, and scores are compared."""
    theta = 1e4 ** -(torch.arange(0, D, 2, dtype=torch.double) / D)
    x = torch.linspace(-1, 1, 2 * D).mul(5).sin().view(2, D)
    t, s = torch.tensor([3, 1000]), torch.tensor([1, 1001])

    def turned(x, positions, halves=False):
        angle = positions[:, None].double() * theta
        pairs = x.view(-1, 2, D // 2).mT if halves else x.view(-1, D // 2, 2)
        numbers = torch.view_as_complex(pairs.double().contiguous())
        return numbers * torch.polar(torch.ones_like(angle), angle)

    def products(a, b):
        return (a @ b.mH).real

    nothing = torch.zeros_like(t)
    simulated = (
        (0, turned(x, t), turned(x, s)),
        (1, turned(x, t), turned(x, nothing)),
        (1, turned(x, nothing), turned(x, s)),
        (2, turned(x, t), turned(x, -s)),
        (3, turned(x, t, halves=True), turned(x, s, halves=True)),
        (5, turned(x, nothing), turned(x, nothing)),
    )
    found = scores(x, x, t, s).double()
    apart = [(products(a, b) - found).abs().max() for _, a, b in simulated]
    best = int(torch.stack(apart).argmin())
    return simulated[best][0] if apart[best] < 1e-2 else 4


def rotary_by_gradients(scores, D):
    """The gradient by the query is the rotated key."""
    x = torch.linspace(1, 2, D).view(1, D)

    def rotated_key(t, s):
        query = torch.zeros(1, D, requires_grad=True)
        scores(query, x, torch.tensor([t]), torch.tensor([s])).sum().backward()
        return query.grad[0]

    def same(a, b):
        return torch.allclose(a, b, atol=1e-3)

    base = rotated_key(0, 0)
    by_query, by_key = rotated_key(7, 0), rotated_key(0, 7)
    if same(by_query, base) or same(by_key, base):
        return 5 if same(by_query, by_key) else 1
    if same(by_query, by_key):
        return 2
    if same(rotated_key(1000, 0), rotated_key(1001, 0)):
        return 4
    # Columns 0 and 1 are one pair if their length stays.
    return 0 if abs(by_key[:2].norm() - base[:2].norm()) < 1e-3 else 3


def rotary_in_order(scores, D):
    """From the layout to the positions: the tests in another order."""
    rng = torch.Generator().manual_seed(5)
    x, y = torch.randn(2, D, generator=rng)
    one, other = torch.eye(D)[:2]
    grid = [[one_score(scores, D, t, s, x, y) for s in (0, 3, 8)] for t in (0, 3, 8)]
    table = torch.tensor(grid)
    rows = (table - table[:1]).abs().max() < 1e-3
    columns = (table - table[:, :1]).abs().max() < 1e-3
    if rows or columns:
        return 5 if rows and columns else 1
    if (table - table.T).abs().max() < 1e-3:
        return 2
    late = [one_score(scores, D, t, 0, x, y) for t in (2000, 2001)]
    if abs(late[0] - late[1]) < 1e-3:
        return 4
    return 3 * (abs(one_score(scores, D, 2, 0, one, other)) < 1e-3)


def rotary_with_many(scores, D):
    """Many vectors at once, for the means of differences."""
    rng = torch.Generator().manual_seed(6)
    x, y = torch.randn(2, 20, D, generator=rng)

    def table(t, s):
        here = torch.full((20,), t), torch.full((20,), s)
        return scores(x, y, *here)

    def equal(a, b):
        return (a - b).abs().mean() < 1e-3

    start = table(0, 0)
    moved = equal(table(4, 0), start), equal(table(0, 4), start)
    if any(moved):
        return 5 if all(moved) else 1
    if equal(table(4, 1), table(1, 4)):
        return 2
    if equal(table(1600, 0), table(1601, 0)):
        return 4
    unit = torch.eye(D)
    first = scores(unit, unit, torch.full((D,), 1), torch.full((D,), 0))
    return 0 if abs(first[0, 1]) > 0.5 else 3


def use_by_one_input(head, words, positions):
    """One input in which all four explanations predict different keys."""
    key = int(head(words, positions).argmax())
    back, size = len(words) - 1 - key, len(words) + 3
    row = size - 1 - back
    free = [n for n in range(size - 1) if n != row]
    by_distance, by_position, by_word = free[:3]
    places = 500 + 1000 * torch.arange(size)
    places[by_distance] = places[-1] - back
    places[by_position] = key
    new = torch.arange(100, 100 + size)
    new[by_word] = words[key]
    found = int(head(new, places).argmax())
    return [by_distance, by_position, by_word, row].index(found)


def use_by_steps(head, words, positions):
    """One change after the other."""
    weights = head(words, positions)
    key = int(weights.argmax())
    if head(words, positions + 31)[key] < 0.9:
        return 1
    replaced = words.clone()
    replaced[key] = 1000
    if head(replaced, positions)[key] < 0.5:
        return 2
    return 0 if head(words, positions * 3)[key] < 0.5 else 3


def use_by_exclusion(head, words, positions):
    """What still attends is excluded, until one explanation is left."""
    key = int(head(words, positions).argmax())

    def kept(words, positions):
        return head(words, positions)[key] > 0.5

    left = {0, 1, 2, 3}
    left -= {0, 2, 3} if not kept(words, positions + 200) else {1}
    other = torch.where(torch.arange(len(words)) == key, 999, words)
    left -= {0, 1, 3} if not kept(other, positions) else {2}
    if len(left) > 1:
        left -= {0} if kept(words, positions * 5) else {3}
    return left.pop()


def use_by_new_words(head, words, positions):
    """All words are new, then all positions are."""
    key = int(head(words, positions).argmax())
    new = torch.arange(len(words)) + 300
    if head(new, positions)[key] < 0.5:
        return 2
    if head(new, positions + 300)[key] > 0.5:
        gap = positions + 300
        gap[-1] += 50
        return 3 if head(new, gap)[key] > 0.5 else 0
    return 1


def use_by_an_extra_row(head, words, positions):
    """A row is put in before the query: the last row is the query's."""
    key = int(head(words, positions).argmax())
    longer = torch.cat([words[:-1], torch.tensor([400]), words[-1:]])
    places = torch.cat([positions[:-1], torch.tensor([700]), positions[-1:]])
    if head(longer, places)[key] < 0.5:
        return 3
    if head(words, positions + 700)[key] < 0.5:
        return 1
    other = words.clone()
    other[key] = 401
    return 2 if head(other, positions)[key] < 0.5 else 0


rotate_in_a_module = Table()
ANSWERS = collect_answers(
    vars(),
    check_sinusoidal="waves",
    check_rotate="rotate",
    check_alibi="alibi",
    check_relative_bias="table",
    check_new_angles="angles",
    check_rotary_fault="rotary",
    check_position_use="use",
)
