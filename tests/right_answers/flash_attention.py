"""Right answers to the exercises of chapters/11_flash_attention."""

import math

import torch
from torch.nn import functional as F

from attnbook.exercises import flash_attention as checks
from right_answers import in_double


def pairs(key, value, block):
    """Return tiles of keys with their values."""
    return zip(key.split(block, -2), value.split(block, -2), strict=True)


def online_by_element(chunks):
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


def online_by_logsumexp(chunks):
    top = lse = torch.tensor(-math.inf)
    for chunk in chunks:
        top = torch.maximum(top, chunk.max(dim=-1).values)
        lse = torch.logaddexp(lse.to(chunk), chunk.logsumexp(-1))
    return top, torch.where(top == -math.inf, 0.0, (lse - top).exp())


def online_with_pairs(chunks):
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


def online_where(chunks):
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


def tiled_by_merging(query, key, value, block):
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


def tiled_keys_only(query, key, value, block):
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


def tiled_normalised(query, key, value, block):
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


def tiled_backwards_through_the_keys(query, key, value, block):
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
    return share * output_a + (1 - share) * output_b, torch.logaddexp(
        lse_a, lse_b
    )


def merge_by_softmax(output_a, lse_a, output_b, lse_b):
    both = torch.stack([lse_a, lse_b])
    weights = both.softmax(0).nan_to_num(0.0)[..., None]
    mixed = (weights * torch.stack([output_a, output_b])).sum(0)
    return mixed, both.logsumexp(0)


def merge_by_maximum(output_a, lse_a, output_b, lse_b):
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


def back_by_lists(query, key, value, output, lse, upstream, block):
    """First the keys' and values' gradients, then the queries', as Triton's."""
    scale = query.shape[-1] ** -0.5
    delta = (upstream * output).sum(-1, keepdim=True)
    rows = [
        x.split(block, -2) for x in (query, upstream, lse[..., None], delta)
    ]
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
            sum(
                dscores(*row, k, v)[1] @ k
                for k, v in zip(*columns, strict=True)
            )
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


def back_without_the_saved(query, key, value, output, lse, upstream, block):
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


ANSWERS = {
    "check_online_softmax": (
        ("score by score", online_by_element),
        ("logaddexp", online_by_logsumexp),
        ("pairs that join", online_with_pairs),
        ("NaN to 0", online_where),
        ("a module, and a list", Online()),
        ("double inside, and a sentinel", online_in_double),
    ),
    "check_tiled": (
        ("indices", tiled_by_index),
        ("tiles merged", tiled_by_merging),
        ("all queries at once", tiled_keys_only),
        ("powers of two", tiled_with_powers_of_two),
        ("an average after every tile", tiled_normalised),
        ("from the last tile", tiled_backwards_through_the_keys),
    ),
    "check_merge": (
        ("sigmoid", merge_by_sigmoid),
        ("softmax over two", merge_by_softmax),
        ("the larger one taken off", merge_by_maximum),
        ("lerp", merge_by_lerp),
        ("row by row", merge_by_rows),
        ("double inside", in_double(checks.check_merge.solution)),
    ),
    "check_tiled_backward": (
        ("indices", back_by_index),
        ("two loops, and a list", back_by_lists),
        ("the average first", back_with_average_first),
        ("chunks of queries", back_without_the_saved),
        ("double inside", in_double(checks.check_tiled_backward.solution)),
        ("powers of two", back_with_powers_of_two),
    ),
}
