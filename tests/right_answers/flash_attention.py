"""Right answers to the exercises of chapters/11_flash_attention."""

import math

import torch
from torch.nn import functional as F

from attnbook.exercises import flash_attention as checks
from right_answers import collect_answers, in_double


def pairs(key, value, block):
    """Return tiles of keys with their values."""
    return zip(key.split(block, -2), value.split(block, -2), strict=True)


def online_score_by_score(chunks):
    """Milakov and Gimelshein's algorithm 3, one score after the other."""
    top = total = None
    for chunk in chunks:
        for column in chunk.unbind(-1):
            if top is None:
                top, total = column, (column > -torch.inf).to(column)
                continue
            now = torch.where(column > top, column, top)
            shift = torch.where(now == -torch.inf, 0.0, now)
            total = total * torch.exp(top - shift) + torch.exp(column - shift)
            top = now
    return top, total


def online_by_logaddexp(chunks):
    top = lse = torch.tensor(-math.inf)
    for chunk in chunks:
        top = torch.maximum(top, chunk.max(dim=-1).values)
        lse = torch.logaddexp(lse.to(chunk), chunk.logsumexp(-1))
    return top, torch.where(top == -math.inf, 0.0, (lse - top).exp())


def online_with_pairs_that_join(chunks):
    """Each chunk gives a pair; two pairs give one."""

    def pair(chunk):
        top = chunk.amax(-1)
        low = top.masked_fill(top == -torch.inf, 0)
        return top, (chunk - low.unsqueeze(-1)).exp().sum(-1)

    def join(a, b):
        top = torch.maximum(a[0], b[0])
        low = top.masked_fill(top == -torch.inf, 0)
        return top, sum(n * (m - low).exp() for m, n in (a, b))

    found = None
    for chunk in chunks:
        found = pair(chunk) if found is None else join(found, pair(chunk))
    return found


def online_with_nan_to_zero(chunks):
    it = iter(chunks)
    chunk = next(it)
    top = chunk.amax(-1, keepdim=True)
    total = (chunk - top).exp().nan_to_num(0.0).sum(-1, keepdim=True)
    for chunk in it:
        new = chunk.amax(-1, keepdim=True).maximum(top)
        total = total * (top - new).exp().nan_to_num(0.0)
        total = total + (chunk - new).exp().nan_to_num(0.0).sum(-1, True)
        top = new
    return top[:, 0], total[:, 0]


class Online(torch.nn.Module):
    """Module style, with a list as the answer."""

    def forward(self, chunks):
        top = total = 0
        for n, chunk in enumerate(chunks):
            best, _ = chunk.sort(dim=-1)
            new = best[:, -1] if n == 0 else torch.fmax(top, best[:, -1])
            low = torch.clamp(new, min=torch.finfo(new.dtype).min)
            old = total * torch.exp(top - low) if n else 0
            total = old + torch.exp(chunk - low[:, None]).sum(1)
            top = new
        return [top, total]


def online_in_double(chunks):
    top = total = kind = None
    for chunk in chunks:
        kind, x = chunk.dtype, chunk.double()
        if top is None:
            top = x.new_full(x.shape[:1], -1e300)
            total = torch.zeros_like(top)
        new = torch.maximum(top, x.amax(-1))
        total = total * (top - new).exp() + (x - new[:, None]).exp().sum(-1)
        top = new
    seen = top > -1e299
    top = torch.where(seen, top, -torch.inf)
    return top.to(kind), torch.where(seen, total, 0.0).to(kind)


def tiled_by_index(query, key, value, block):
    T, S, D = query.shape[-2], key.shape[-2], query.shape[-1]
    output = torch.empty(*query.shape[:-1], value.shape[-1]).to(query)
    lse = torch.empty(query.shape[:-1]).to(query)
    for i in range(0, T, block):
        q = query[..., i : i + block, :] / math.sqrt(D)
        top = torch.full(q.shape[:-1], -math.inf).to(q)[..., None]
        total, sums = torch.zeros_like(top), 0
        for j in range(0, S, block):
            k, v = key[..., j : j + block, :], value[..., j : j + block, :]
            s = torch.einsum("...td,...sd->...ts", q, k)
            new = torch.maximum(top, s.amax(-1, keepdim=True))
            p = torch.exp(s - new)
            total = torch.exp(top - new) * total + p.sum(-1, keepdim=True)
            sums = torch.exp(top - new) * sums + p @ v
            top = new
        output[..., i : i + block, :] = sums / total
        lse[..., i : i + block] = (top + total.log())[..., 0]
    return output, lse


def tiled_by_merging_tiles(query, key, value, block):
    """Every tile is an attention of its own; two become one."""
    scale, outputs, sums = query.shape[-1] ** -0.5, [], []
    for q in query.split(block, -2):
        output = lse = None
        for k, v in pairs(key, value, block):
            s = q * scale @ k.mT
            o, z = s.softmax(-1) @ v, s.logsumexp(-1)
            if output is None:
                output, lse = o, z
                continue
            share = torch.sigmoid(z - lse)[..., None]
            output = output + share * (o - output)
            lse = torch.logaddexp(lse, z)
        outputs.append(output)
        sums.append(lse)
    return torch.cat(outputs, -2), torch.cat(sums, -1)


def tiled_with_all_queries_at_once(query, key, value, block):
    """All queries at once: a strip of scores is T by block."""
    q = query * query.shape[-1] ** -0.5
    top, total, output = torch.full_like(q[..., :1], -torch.inf), 0, 0
    for j in range(0, key.shape[-2], block):
        s = q @ key[..., j : j + block, :].mT
        new = torch.maximum(top, s.amax(-1, True))
        weights, factor = torch.exp(s - new), torch.exp(top - new)
        total = total * factor + weights.sum(-1, True)
        output = output * factor + weights @ value[..., j : j + block, :]
        top = new
    return output / total, (top + total.log()).squeeze(-1)


def tiled_with_powers_of_two(query, key, value, block):
    """As kernels do: log2 e in the scale, natural again at the end."""
    scale = query.shape[-1] ** -0.5 / math.log(2)
    outputs, sums = [], []
    for q in query.split(block, -2):
        top, total, output = None, 0.0, 0.0
        for k, v in pairs(key, value, block):
            s = q @ k.mT * scale
            best = s.amax(-1)
            new = best if top is None else torch.maximum(top, best)
            factor = 0.0 if top is None else torch.exp2(top - new)[..., None]
            p = torch.exp2(s - new[..., None])
            total = total * factor + p.sum(-1, keepdim=True)
            output, top = output * factor + p @ v, new
        outputs.append(output / total)
        sums.append((top + total[..., 0].log2()) * math.log(2))
    return torch.cat(outputs, -2), torch.cat(sums, -1)


def tiled_averaging_after_every_tile(query, key, value, block):
    """The first paper's way: the output is an average after every tile."""
    scale, outputs, sums = query.shape[-1] ** -0.5, [], []
    for q in query.split(block, -2):
        top = torch.full_like(q[..., :1], -torch.inf)
        total = torch.zeros_like(top)
        output = q.new_zeros(*q.shape[:-1], value.shape[-1])
        for k, v in pairs(key, value, block):
            s = q @ k.mT * scale
            new = torch.maximum(top, s.amax(-1, keepdim=True))
            p, old = torch.exp(s - new), total * torch.exp(top - new)
            total = old + p.sum(-1, keepdim=True)
            output, top = (old * output + p @ v) / total, new
        outputs.append(output)
        sums.append((top + total.log())[..., 0])
    return torch.cat(outputs, -2), torch.cat(sums, -1)


def tiled_from_the_last_tile(query, key, value, block):
    """From the last tile to the first, keys hidden that pad the last."""
    more, S = -key.shape[-2] % block, key.shape[-2]
    key, value = (F.pad(x, (0, 0, 0, more)) for x in (key, value))
    outputs, sums = [], []
    for q in (query * query.shape[-1] ** -0.5).split(block, -2):
        top = torch.full_like(q[..., :1], -torch.inf)
        total, output = torch.zeros_like(top), 0.0
        for j in reversed(range(0, S, block)):
            s = q @ key[..., j : j + block, :].mT
            s[..., max(S - j, 0) :] = -torch.inf
            new = torch.maximum(top, s.amax(-1, keepdim=True))
            p, factor = torch.exp(s - new), torch.exp(top - new)
            total = total * factor + p.sum(-1, keepdim=True)
            output = output * factor + p @ value[..., j : j + block, :]
            top = new
        outputs.append(output / total)
        sums.append((top + total.log())[..., 0])
    return torch.cat(outputs, -2), torch.cat(sums, -1)


def merge_by_sigmoid(output_a, lse_a, output_b, lse_b):
    share = torch.sigmoid(lse_a - lse_b)
    share = torch.where(lse_a == lse_b, 0.5, share)[..., None]
    return share * output_a + (1 - share) * output_b, torch.logaddexp(lse_a, lse_b)


def merge_by_softmax_over_two(output_a, lse_a, output_b, lse_b):
    both = torch.stack([lse_a, lse_b])
    weights = both.softmax(0).nan_to_num(0.0)[..., None]
    mixed = (weights * torch.stack([output_a, output_b])).sum(0)
    return mixed, both.logsumexp(0)


def merge_with_the_larger_taken_off(output_a, lse_a, output_b, lse_b):
    top = torch.maximum(lse_a, lse_b)
    low = top.masked_fill(top == -math.inf, 0.0)
    a, b = torch.exp(lse_a - low), torch.exp(lse_b - low)
    total = a + b
    mixed = a[..., None] * output_a + b[..., None] * output_b
    return mixed / total.clamp(min=1.0)[..., None], low + total.log()


def merge_by_lerp(output_a, lse_a, output_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    share = torch.exp(lse_b - lse).nan_to_num(0.0).unsqueeze(-1)
    return torch.lerp(output_a, output_b, share), lse


def merge_by_rows(output_a, lse_a, output_b, lse_b):
    shape, E = lse_a.shape, output_a.shape[-1]
    rows = zip(
        output_a.reshape(-1, E),
        lse_a.flatten().tolist(),
        output_b.reshape(-1, E),
        lse_b.flatten().tolist(),
        strict=True,
    )
    outputs, sums = [], []
    for oa, a, ob, b in rows:
        top = max(a, b)
        if top == -math.inf:
            outputs.append(torch.zeros_like(oa))
            sums.append(top)
            continue
        x, y = math.exp(a - top), math.exp(b - top)
        outputs.append((x * oa + y * ob) / (x + y))
        sums.append(top + math.log(x + y))
    lse = torch.tensor(sums, dtype=lse_a.dtype).reshape(shape)
    return torch.stack(outputs).reshape(output_a.shape), lse


def back_by_index(query, key, value, output, lse, upstream, block):
    scale = query.shape[-1] ** -0.5
    dq, dk, dv = (torch.zeros_like(x) for x in (query, key, value))
    delta = torch.einsum("...te,...te->...t", upstream, output)
    for i in range(0, query.shape[-2], block):
        t = slice(i, i + block)
        for j in range(0, key.shape[-2], block):
            s = slice(j, j + block)
            q, k, v = query[..., t, :], key[..., s, :], value[..., s, :]
            up = upstream[..., t, :]
            w = torch.exp(q @ k.mT * scale - lse[..., t, None])
            ds = w * (up @ v.mT - delta[..., t, None]) * scale
            dv[..., s, :] += w.mT @ up
            dq[..., t, :] += ds @ k
            dk[..., s, :] += ds.mT @ q
    return dq, dk, dv


def back_by_two_loops(query, key, value, output, lse, upstream, block):
    """First the keys' and values' gradients, then the queries', as Triton's."""
    scale = query.shape[-1] ** -0.5
    delta = (upstream * output).sum(-1, keepdim=True)
    rows = [x.split(block, -2) for x in (query, upstream, lse[..., None], delta)]
    columns = [x.split(block, -2) for x in (key, value)]

    def dscores(q, up, z, d, k, v):
        w = torch.exp(q @ k.mT * scale - z)
        return w, w * (up @ v.mT - d) * scale

    dq, dk, dv = [], [], []
    for k, v in zip(*columns, strict=True):
        a = b = 0
        for q, up, z, d in zip(*rows, strict=True):
            w, ds = dscores(q, up, z, d, k, v)
            a, b = a + ds.mT @ q, b + w.mT @ up
        dk.append(a)
        dv.append(b)
    for row in zip(*rows, strict=True):
        dq.append(
            sum(dscores(*row, k, v)[1] @ k for k, v in zip(*columns, strict=True))
        )
    return [torch.cat(x, -2) for x in (dq, dk, dv)]


def back_with_average_first(query, key, value, output, lse, upstream, block):
    """The average from the weights themselves, in a pass of its own."""
    scale, S = query.shape[-1] ** -0.5, key.shape[-2]
    cuts = [slice(j, j + block) for j in range(0, S, block)]
    dq, mean = torch.zeros_like(query), 0.0

    def weights(s):
        return (query * scale @ key[..., s, :].mT - lse[..., None]).exp()

    for s in cuts:
        dw = upstream @ value[..., s, :].mT
        mean = mean + (weights(s) * dw).sum(-1, keepdim=True)
    dk, dv = [], []
    for s in cuts:
        w = weights(s)
        ds = w * (upstream @ value[..., s, :].mT - mean) * scale
        dq += ds @ key[..., s, :]
        dk.append(ds.mT @ query)
        dv.append(w.mT @ upstream)
    return dq, torch.cat(dk, -2), torch.cat(dv, -2)


def back_by_chunks_of_queries(query, key, value, output, lse, upstream, block):
    """Queries in chunks; the keys' tiles are small enough."""
    scale = query.shape[-1] ** -0.5
    dq, dk, dv = [], torch.zeros_like(key), torch.zeros_like(value)
    for i in range(0, query.shape[-2], block):
        q, up = query[..., i : i + block, :], upstream[..., i : i + block, :]
        w = (q @ key.mT * scale).softmax(-1)
        dw = up @ value.mT
        ds = w * (dw - (w * dw).sum(-1, keepdim=True)) * scale
        dq.append(ds @ key)
        dk += ds.mT @ q
        dv += w.mT @ up
    return torch.cat(dq, -2), dk, dv


def back_with_powers_of_two(query, key, value, output, lse, upstream, block):
    scale, turn = query.shape[-1] ** -0.5, 1 / math.log(2)
    delta = (upstream * output).sum(-1)[..., None]
    dq, dk, dv = (torch.zeros_like(x) for x in (query, key, value))
    for i in range(0, query.shape[-2], block):
        t = slice(i, i + block)
        q, up, d = query[..., t, :], upstream[..., t, :], delta[..., t, :]
        z = lse[..., t, None] * turn
        for k, v, a, b in zip(
            *(x.split(block, -2) for x in (key, value, dk, dv)), strict=True
        ):
            w = torch.exp2(q @ k.mT * (scale * turn) - z)
            ds = w * (up @ v.mT) - w * d
            b.add_(w.mT @ up)
            a.add_(ds.mT @ q, alpha=scale)
            dq[..., t, :].add_(ds @ k, alpha=scale)
    return dq, dk, dv


def counts_from_a_mask(B, H, n, D, R, C):
    """A tile counts if the causal mask has an entry in it."""
    mask = torch.ones(n, n, dtype=torch.bool).tril()
    tiles = keys = programs = 0
    for rows in mask.split(R):
        programs += 1
        for columns in rows.split(C, dim=1):
            if columns.any():
                tiles += 1
                keys += columns.shape[1]
    read = 2 * n * D + 4 * keys * D
    each = programs, tiles, read, 2 * n * D + 4 * n
    return [*(B * H * x for x in each), 4 * R * C + 4 * R * D]


def counts_by_a_walk(B, H, n, D, R, C):
    """Every program of every head is walked through."""
    counts = [0, 0, 0, 0, 4 * R * (C + D)]
    for _ in range(B * H):
        for row in range(0, n, R):
            rows = min(R, n - row)
            counts[0] += 1
            counts[2] += 2 * rows * D
            for column in range(0, row + rows, C):
                counts[1] += 1
                counts[2] += 2 * 2 * min(C, n - column) * D
            counts[3] += rows * (2 * D + 4)
    return counts


def counts_by_comprehensions(B, H, n, D, R, C):
    """One comprehension, with math.ceil."""
    ends = [min(i + R, n) for i in range(0, n, R)]
    visited = [math.ceil(end / C) for end in ends]
    keys = sum(min(n, C * count) for count in visited)
    read = 2 * D * (n + 2 * keys)
    each = len(ends), sum(visited), read, 2 * n * (D + 2)
    return [B * H * x for x in each] + [(C + D) * R * 4]


def counts_with_torch(B, H, n, D, R, C):
    """The tiles of all programs at once."""
    ends = (torch.arange(0, n, R) + R).clamp(max=n)
    visited = (ends + C - 1) // C
    keys = (visited * C).clamp(max=n).sum().item()
    heads = B * H
    return [
        heads * len(ends),
        heads * visited.sum().item(),
        heads * (2 * n * D + 4 * keys * D),
        heads * (2 * n * D + 4 * n),
        4 * (R * C + R * D),
    ]


def counts_from_the_last_tile(B, H, n, D, R, C):
    """The last tile of queries first, as the kernel does it."""

    def walk(tile):
        if tile < 0:
            return [0, 0, 0, 0]
        end = min((tile + 1) * R, n)
        visited, rows = (end - 1) // C + 1, end - tile * R
        loaded = min(visited * C, n)
        mine = 1, visited, 2 * D * (rows + 2 * loaded), rows * (2 * D + 4)
        return [a + b for a, b in zip(mine, walk(tile - 1), strict=True)]

    return [B * H * x for x in walk((n - 1) // R)] + [4 * R * (C + D)]


def exact_attention(query, key, value):
    """Return output and logsumexp in double precision."""
    q, k, v = query.double(), key.double(), value.double()
    scores = q @ k.T / q.shape[-1] ** 0.5
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def departs(attention, given, block, part=0):
    """Tell whether output (or logsumexp) departs from the exact one."""
    found, exact = attention(*given, block)[part], exact_attention(*given)[part]
    return not torch.allclose(found.double(), exact, rtol=1e-3, atol=1e-3)


def numbers_of(seed, *shapes):
    """Return normal numbers of these shapes."""
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(*x, generator=rng) for x in shapes]


def fault_by_a_table_of_inputs(attention, query, key, value):
    """An input for each fault, in a table."""
    q, k, v = numbers_of(5, (4, 8), (6, 8), (6, 8))
    inputs = {
        5: ((q, k, v[:, :3]), 6),
        2: ((q, k, v), 7),
        4: ((q[:1], -300 * q[:1].repeat(6, 1), v), 6),
    }
    if departs(attention, (q, k, v), 6, part=1):
        return 3
    for number, (given, block) in inputs.items():
        if departs(attention, given, block):
            return number
    rising = k * torch.arange(1, 7)[:, None]
    return int(departs(attention, (q, rising, v), 1))


def fault_by_one_number(attention, query, key, value):
    """Keys and values of one or two entries, with known results."""
    q = torch.ones(1, 1)

    def average(keys, values, block):
        given = torch.tensor(keys)[:, None], torch.tensor(values)
        return attention(q, *given, block)

    if abs(average([2.0], [[1.0]], 1)[1].item() - 2) > 0.1:
        return 3
    wide = average([0.0, 3.0], [[0.0] * 9, [1.0] * 9], 2)[0]
    if abs(wide[0, 0].item() - torch.tensor(3.0).sigmoid().item()) > 1e-3:
        return 5
    if abs(average([1.0], [[1.0]], 4)[0].item() - 1) > 1e-3:
        return 2
    low = average([-500.0, -500.0], [[1.0], [3.0]], 2)[0].item()
    if not abs(low - 2) < 1e-3:
        return 4
    rising = average([0.0, 5.0], [[1.0], [0.0]], 1)[0].item()
    right = 1 - torch.tensor(5.0).sigmoid().item()
    return int(abs(rising - right) > 1e-3)


def fault_by_block_sizes(attention, query, key, value):
    """The block may not change the result."""
    q, k, v = numbers_of(6, (3, 4), (12, 4), (12, 4))
    output = attention(q, k, v, 12)[0]
    if departs(attention, (q, k, v), 12, part=1):
        return 3
    if departs(attention, (q, k, v.repeat(1, 3)), 12):
        return 5
    if not torch.allclose(attention(q, k, v, 13)[0], output, atol=1e-3):
        return 2
    if not torch.allclose(attention(q, k, v, 3)[0], output, atol=1e-3):
        return 1
    moved = torch.cat([k, torch.ones(12, 1)], 1)
    far = torch.cat([q, torch.full((3, 1), -1e3)], 1)
    return 4 if departs(attention, (far, moved, v), 12) else 0


def fault_in_double(attention, query, key, value):
    """Double precision and many keys."""
    q, k, v = (x.double() for x in numbers_of(7, (5, 6), (40, 6), (40, 6)))
    if departs(attention, (q, k, v), 40, part=1):
        return 3
    for number, given, block in (
        (5, (q, k, v[:, :2]), 40),
        (2, (q, k[:39], v[:39]), 40),
        (4, (-q[:1], 2e3 * q[:1].repeat(8, 1), v[:8]), 8),
        (1, (q, k, v), 8),
    ):
        if departs(attention, given, block):
            return number
    return 0


def fault_by_pairs_of_calls(attention, query, key, value):
    """Two calls that must agree, for each fault but one."""
    q, k, v = numbers_of(8, (2, 4), (6, 4), (6, 4))

    def differ(one, other, part=0):
        a, b = attention(*one)[part], attention(*other)[part]
        return not torch.allclose(a, b, rtol=1e-3, atol=1e-3)

    twice = torch.cat([k, k]), torch.cat([v, v])
    rise = attention(q, *twice, 12)[1] - attention(q, k, v, 6)[1]
    if (rise - math.log(2)).abs().max() > 1e-3:
        return 3
    if differ((q, k, v, 6), (q, k, v, 9)):
        return 2
    if differ((q, k, v, 6), (q, k, v, 2)):
        return 1
    wide = attention(q, k, torch.cat([v, v, v], -1), 6)[0][:, :4]
    if not torch.allclose(wide, attention(q, k, v, 6)[0], atol=1e-3):
        return 5
    low = attention(torch.full((1, 4), 30.0), torch.full((6, 4), -20.0), v, 6)
    return 0 if torch.allclose(low[0][0], v.mean(0), atol=1e-2) else 4


def each(explain):
    """Return an answer that explains one accumulator after the other."""
    return lambda accumulators, terms: [explain(x, terms) for x in accumulators]


@each
def reason_by_different_results(accumulate, terms):
    """The number of different results of two kinds of terms."""
    n = len(terms)
    whole = {accumulate(torch.full((n, 1), 3.0), i).item() for i in range(30)}
    if whole != {3.0 * n}:
        return 2 if all(x % 3 == 0 for x in whole) else 3
    rough = numbers_of(1, (n, 100))[0].exp() ** 3
    return int(len({tuple(accumulate(rough, i).tolist()) for i in range(9)}) > 1)


@each
def reason_by_unit_vectors(accumulate, terms):
    """A unit vector for each term: the sum says which are missing."""
    n = len(terms)
    units = torch.eye(n)
    for i in range(20):
        kept = accumulate(units, i)
        if (kept != 1).any():
            return 2 if set(kept.tolist()) <= {0.0, 1.0} else 3
    rough = numbers_of(2, (n, 90))[0] / 3
    sums = [accumulate(rough, i) for i in range(12)]
    return int(any(not torch.equal(x, sums[0]) for x in sums[1:]))


@each
def reason_by_terms_that_cancel(accumulate, terms):
    """A large number, its negative and ones."""
    n = len(terms)
    ones = torch.stack([accumulate(torch.ones(n, 2), i) for i in range(20)])
    if ones.max() > n or (ones % 1).any():
        return 3
    if ones.min() < n:
        return 2
    large = torch.ones(n, 1)
    large[0], large[-1] = 1e8, -1e8
    return int(len({accumulate(large, i).item() for i in range(20)}) > 1)


@each
def reason_in_double(accumulate, terms):
    """Double precision, and ones in it."""
    n = len(terms)
    ones = torch.ones(n, 3).double()
    off = torch.stack([accumulate(ones, i) for i in range(20)]) - n
    if off.any():
        return 3 if (off - off.round()).abs().max() > 1e-6 else 2
    rough = numbers_of(3, (n, 200))[0].double() / 7
    first = accumulate(rough, 0)
    return int(any(not accumulate(rough, i).equal(first) for i in range(1, 15)))


def reason_with_numpy(accumulators, terms):
    """Everything as arrays, all runs in one table."""
    n, found = len(terms), []
    given = torch.cat([torch.ones(n, 1), numbers_of(4, (n, 150))[0].exp()], 1)
    for accumulate in accumulators:
        table = torch.stack([accumulate(given, i) for i in range(25)]).numpy()
        counts = table[:, 0]
        if (counts == n).all():
            found.append(int((table != table[0]).any()))
        else:
            found.append(2 if (counts == counts.round()).all() else 3)
    return found


online_in_a_module = Online()
merge_in_double = in_double(checks.check_merge.solution)
back_in_double = in_double(checks.check_tiled_backward.solution)
ANSWERS = collect_answers(
    vars(),
    check_online_softmax="online",
    check_tiled="tiled",
    check_merge="merge",
    check_tiled_backward="back",
    check_tile_counts="counts",
    check_tiled_fault="fault",
    check_run_difference="reason",
)
