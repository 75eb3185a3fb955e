"""Attention by tiles: some queries against some keys at a time.

The (T, S) scores never stand in memory. Forwards, an online softmax keeps each
query's maximum, sum and average; backwards, exp(score - logsumexp) gives every
tile's weights again.

Chapter: chapters/11_flash_attention
Source: Dao et al. (2022), algorithms 1 and 4,
    https://arxiv.org/abs/2205.14135; one division at the end and the saved
    logsumexp: Dao (2023), section 3.1.1, the order of the loops: algorithm 1
    and section 3.2, https://arxiv.org/abs/2307.08691. Departure: a query that
    sees no key gets zeros.
Axes: T queries, S keys, D width of query and key, E value width; leading axes
    (B batch, H heads, ...) broadcast
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.online_softmax import correction, finite

BLOCK = 256


class Scores:
    """How the scores of a tile come about: here, products times a scale.

    Attributes:
        keys: how many there are.
        scale: factor of the products.
    """

    def __init__(self, keys: int, scale: float):
        self.keys, self.scale = keys, scale

    def reach(self, first: int, stop: int) -> tuple[int, int]:
        """Return which keys queries first ... stop - 1 may see at all."""
        return 0, self.keys

    def tile(
        self, query: Tensor, key: Tensor, row: int, column: int
    ) -> tuple[Tensor, Tensor | float]:
        """Return a tile's scores, and their derivatives by the products.

        Args:
            query: some queries.
            key: some keys.
            row: the number of the first of these queries.
            column: the number of the first of these keys.
        """
        return (query * self.scale) @ key.transpose(-2, -1), self.scale


def attend_tiled(
    query: Float[Tensor, "*#B T D"],
    key: Float[Tensor, "*#B S D"],
    value: Float[Tensor, "*#B S E"],
    block: int = BLOCK,
    scores: Scores | None = None,
) -> tuple[Float[Tensor, "*B T E"], Float[Tensor, "*B T"]]:
    """Return attention, and the logarithm of each query's sum of exp(score).

    Half precision is added up in single; the logarithms are then single too.

    Args:
        query: what is asked.
        key: what it is compared with.
        value: what is averaged; one value a key.
        block: queries, and keys, of a tile.
        scores: how they come about; scaled products unless given.

    Raises:
        ValueError: if a block has no row, or widths or numbers do not fit.
    """
    output, maximum, total = tiled_sums(query, key, value, block, scores)
    return output, maximum + total.log()


def tiled_sums(
    query: Float[Tensor, "*#B T D"],
    key: Float[Tensor, "*#B S D"],
    value: Float[Tensor, "*#B S E"],
    block: int = BLOCK,
    scores: Scores | None = None,
) -> tuple[
    Float[Tensor, "*B T E"], Float[Tensor, "*B T"], Float[Tensor, "*B T"]
]:
    """Return attention, each query's maximum, and its sum of exponentials.

    The two of them say more than one logarithm: of 200 + a small number the
    last digits are lost. Arguments and errors are those of `attend_tiled`.
    """
    scores = fitting(query, key, value, block, scores)
    lead = torch.broadcast_shapes(*(x.shape[:-2] for x in (query, key, value)))
    outputs, maxima, totals = [], [], []
    for row in range(0, query.shape[-2], block):
        rows = wide(query[..., row : row + block, :])
        first, stop = scores.reach(row, row + rows.shape[-2])
        output = rows.new_zeros(*lead, rows.shape[-2], value.shape[-1])
        total = output.new_zeros(output.shape[:-1])
        maximum = torch.full_like(total, -torch.inf)
        for column in range(first, stop, block):
            keys = slice(column, min(column + block, stop))
            tile, _ = scores.tile(rows, wide(key[..., keys, :]), row, column)
            highest = torch.maximum(maximum, tile.amax(dim=-1))
            shrunk = correction(maximum, highest)
            raised = (tile - finite(highest)[..., None]).exp_()
            total = total * shrunk + raised.sum(dim=-1)
            output = output * shrunk[..., None]
            output += raised @ wide(value[..., keys, :])
            maximum = highest
        # Of a query that saw nothing, 0 is divided by 1.
        output /= total.masked_fill(total == 0, 1.0)[..., None]
        outputs.append(output.to(query.dtype))
        maxima.append(maximum)
        totals.append(total)
    return torch.cat(outputs, -2), torch.cat(maxima, -1), torch.cat(totals, -1)


def attend_tiled_gradient(
    query: Float[Tensor, "*#B T D"],
    key: Float[Tensor, "*#B S D"],
    value: Float[Tensor, "*#B S E"],
    output: Float[Tensor, "*B T E"],
    lse: Float[Tensor, "*B T"],
    upstream: Float[Tensor, "*B T E"],
    block: int = BLOCK,
    scores: Scores | None = None,
) -> tuple[
    Float[Tensor, "*#B T D"], Float[Tensor, "*#B S D"], Float[Tensor, "*#B S E"]
]:
    """Return a loss's gradients on query, key and value of `attend_tiled`.

    Args:
        query: what was asked.
        key: what it was compared with.
        value: what was averaged.
        output: what `attend_tiled` gave.
        lse: the logarithms it gave.
        upstream: the loss's gradient on the output.
        block: queries, and keys, of a tile.
        scores: how they came about; scaled products unless given.
    """
    scores = fitting(query, key, value, block, scores)
    # Σ weights · (upstream · value) over the keys is upstream · output: what
    # chapter 4 subtracts from every score's gradient needs no tile at all.
    average = (wide(output) * wide(upstream)).sum(dim=-1, keepdim=True)
    dquery, dkey, dvalue = (
        torch.zeros_like(x, dtype=average.dtype) for x in (query, key, value)
    )
    for row in range(0, query.shape[-2], block):
        rows = slice(row, row + block)
        some, up = wide(query[..., rows, :]), wide(upstream[..., rows, :])
        seen = finite(lse[..., rows])[..., None]
        first, stop = scores.reach(row, row + some.shape[-2])
        for column in range(first, stop, block):
            keys = slice(column, min(column + block, stop))
            met, averaged = wide(key[..., keys, :]), wide(value[..., keys, :])
            tile, slope = scores.tile(some, met, row, column)
            weights = (tile - seen).exp_()
            add(dvalue, keys, weights.transpose(-2, -1) @ up)
            dweights = up @ averaged.transpose(-2, -1)
            dtile = weights * (dweights - average[..., rows, :]) * slope
            add(dquery, rows, dtile @ met)
            add(dkey, keys, dtile.transpose(-2, -1) @ some)
    return dquery.to(query), dkey.to(key), dvalue.to(value)


def wide(x: Tensor) -> Tensor:
    """Return the numbers in single precision at least, to be added up in."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def add(whole: Tensor, rows: slice, part: Tensor) -> None:
    """Add to some rows, and over axes in which the whole was broadcast."""
    place = whole[..., rows, :]
    place += part.sum_to_size(place.shape)


def fitting(
    query: Tensor, key: Tensor, value: Tensor, block: int, scores: Scores | None
) -> Scores:
    """Return the scores to use; refuse shapes that do not fit."""
    if block < 1:
        raise ValueError(f"a block has at least 1 row, not {block}")
    width, keys = key.shape[-1], key.shape[-2]
    if query.shape[-1] != width:
        raise ValueError(
            f"queries are {query.shape[-1]} wide but keys are {width}: "
            "a dot product needs equal widths"
        )
    if value.shape[-2] != keys:
        raise ValueError(
            f"there are {keys} keys but {value.shape[-2]} values: "
            "each key needs its value"
        )
    return scores or Scores(keys, width**-0.5)
