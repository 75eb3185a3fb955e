"""Attention in tiles with its lines to be replaced, to make it go wrong.

Axes: T queries, S keys, D width of query and key, E value width
"""

from collections.abc import Callable

import torch
from torch import Tensor

Rows = tuple[Tensor, ...]


def cut(x: Tensor, block: int) -> Rows:
    """Return tiles of rows; the last may be ragged."""
    return x.split(block, dim=-2)


def whole_only(x: Tensor, block: int) -> Rows:
    """Return the tiles that are whole, and drop what is left."""
    count = x.shape[-2] // block * block
    return x[..., :count, :].split(block, dim=-2) if count else (x,)


def padded(x: Tensor, block: int) -> Rows:
    """Return tiles of which the last is filled up with rows of zeros."""
    more = -x.shape[-2] % block
    return torch.nn.functional.pad(x, (0, 0, 0, more)).split(block, dim=-2)


def tiles(
    scale: Callable = lambda q, k, v: q.shape[-1] ** -0.5,
    start: float = -torch.inf,
    best: Callable = lambda scores: scores.amax(-1),
    higher: Callable = torch.maximum,
    of_output: Callable = lambda old, new: (old - new).exp(),
    of_total: Callable = lambda old, new: (old - new).exp(),
    weigh: Callable = lambda scores, top: (scores - top[..., None]).exp(),
    mean: Callable = lambda output, total: output / total[..., None],
    lse: Callable = lambda top, total: top + total.log(),
    queries: Callable = cut,
    keys: Callable = cut,
) -> Callable:
    """Return attention in tiles with some of its lines replaced.

    Args:
        scale: the factor of the products.
        start: the maximum before the first tile.
        best: a tile's maximum.
        higher: the new maximum, from the old one and the tile's.
        of_output: the factor of the output so far.
        of_total: the factor of the total so far.
        weigh: a tile's weights.
        mean: the output at the end.
        lse: what is returned beside it.
        queries: cuts rows of queries.
        keys: cuts rows of keys and values.
    """

    def answer(query, key, value, block):
        found = []
        for q in queries(query * scale(query, key, value), block):
            top = q.new_full(q.shape[:-1], start)
            total, output = torch.zeros_like(top), 0.0
            for k, v in zip(keys(key, block), keys(value, block), strict=True):
                scores = q @ k.mT
                now = higher(top, best(scores))
                weights = weigh(scores, now)
                total = total * of_total(top, now) + weights.sum(-1)
                output = output * of_output(top, now)[..., None] + weights @ v
                top = now
            found.append((mean(output, total), lse(top, total)))
        outputs, sums = zip(*found, strict=True)
        output, sums = torch.cat(outputs, -2), torch.cat(sums, -1)
        missing = query.shape[-2] - output.shape[-2]
        if missing > 0:  # the rows of queries that were dropped stay 0
            output = torch.nn.functional.pad(output, (0, 0, 0, missing))
            sums = torch.nn.functional.pad(sums, (0, missing))
        T = query.shape[-2]
        return output[..., :T, :], sums[..., :T]

    return answer


def weights_of(q, k, z, scale):
    """Return a tile's weights from the saved logsumexp."""
    return (q @ k.mT * scale - z).exp()


def scores_of(weights, dweights, mean):
    """Return the gradient of a tile's scores."""
    return weights * (dweights - mean)


def backward(
    mean: Callable = lambda output, up: (up * output).sum(-1, keepdim=True),
    weights: Callable = weights_of,
    dscores: Callable = scores_of,
    dquery: Callable = lambda ds, k, c: ds @ k * c,
    dkey: Callable = lambda ds, q, c: ds.mT @ q * c,
    dvalue: Callable = lambda w, ds, up: w.mT @ up,
    rows: Callable = cut,
    columns: Callable = cut,
    kept: tuple[bool, bool] = (True, True),
) -> Callable:
    """Return the tiled backward pass with some of its lines replaced.

    Args:
        mean: what is subtracted from each weight's gradient.
        weights: a tile's weights.
        dscores: the gradient of its scores.
        dquery: what a tile adds to the queries' gradient.
        dkey: what it adds to the keys'.
        dvalue: what it adds to the values'.
        rows: cuts what belongs to queries.
        columns: cuts what belongs to keys.
        kept: whether the sums for queries, and for keys and values, go on from
            tile to tile, or each tile replaces what was there.
    """

    def answer(query, key, value, output, lse, upstream, block):
        scale = query.shape[-1] ** -0.5
        dq, dk, dv = (torch.zeros_like(x) for x in (query, key, value))
        given = query, upstream, lse[..., None], mean(output, upstream), dq
        by_row = [rows(x, block) for x in given]
        by_column = [columns(x, block) for x in (key, value, dk, dv)]
        for k, v, k_to, v_to in zip(*by_column, strict=True):
            for q, up, z, middle, q_to in zip(*by_row, strict=True):
                w = weights(q, k, z, scale)
                ds = dscores(w, up @ v.mT, middle)
                add(q_to, dquery(ds, k, scale), kept[0])
                add(k_to, dkey(ds, q, scale), kept[1])
                add(v_to, dvalue(w, ds, up), kept[1])
        return dq, dk, dv

    return answer


def add(place: Tensor, more: Tensor, keep: bool) -> None:
    """Add to what a view shows, or replace it."""
    place.copy_(place + more if keep else more)
