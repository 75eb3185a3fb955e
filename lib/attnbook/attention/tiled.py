"""Tiled attention: one block of queries and one block of keys at a time.

The whole (T, S) matrix of scores is never in memory. In the forward pass, an
online softmax keeps each query's maximum, sum and output. In the backward pass,
exp(score - logsumexp) recomputes each tile's weights.

Source: Dao et al. (2022), algorithms 1 and 4,
    https://arxiv.org/abs/2205.14135; one division at the end and the saved
    logsumexp: Dao (2023), section 3.1.1, the order of the loops: algorithm 1
    and section 3.2, https://arxiv.org/abs/2307.08691. Departure: a query that
    can attend to no key gets zeros.
Axes: T queries, S keys, D width of query and key, E value width; leading axes
    (B batch, H heads, ...) broadcast
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnbook.attention.online_softmax import clamp_maximum, compute_rescaling
from attnbook.attention.scaled_dot_product import (
    require_equal_widths,
    require_values,
)

BLOCK_SIZE = 256


class TileScores:
    """Computes the scores of a tile: scaled dot products.

    Attributes:
        keys: S, the number of keys.
        scale: factor of the products.
    """

    def __init__(self, keys: int, scale: float):
        self.keys, self.scale = keys, scale

    def key_range(self, first: int, stop: int) -> tuple[int, int]:
        """Return which keys queries first ... stop - 1 can attend to."""
        return 0, self.keys

    def compute(
        self, query: Tensor, key: Tensor, row: int, column: int
    ) -> tuple[Tensor, Tensor | float]:
        """Return a tile's scores, and their derivatives by the dot products.

        Args:
            query: the tile's queries.
            key: the tile's keys.
            row: the position of the first of these queries.
            column: the position of the first of these keys.
        """
        return (query * self.scale) @ key.transpose(-2, -1), self.scale


def attend_tiled(
    query: Float[Tensor, "*#B T D"],
    key: Float[Tensor, "*#B S D"],
    value: Float[Tensor, "*#B S E"],
    block: int = BLOCK_SIZE,
    scores: TileScores | None = None,
) -> tuple[Float[Tensor, "*B T E"], Float[Tensor, "*B T"]]:
    """Return attention, and the logarithm of each query's sum of exp(score).

    Sums of half-precision inputs are taken in single precision, and so are the
    logarithms.

    Args:
        query: the queries.
        key: the keys.
        value: the values, one for each key.
        block: queries, and keys, of a tile.
        scores: computes the scores; scaled dot products unless given.

    Raises:
        ValueError: if `block` is below 1, or the shapes do not fit each other.
    """
    output, maximum, total = accumulate_tiles(query, key, value, block, scores)
    return output, maximum + total.log()


def accumulate_tiles(
    query: Float[Tensor, "*#B T D"],
    key: Float[Tensor, "*#B S D"],
    value: Float[Tensor, "*#B S E"],
    block: int = BLOCK_SIZE,
    scores: TileScores | None = None,
) -> tuple[Float[Tensor, "*B T E"], Float[Tensor, "*B T"], Float[Tensor, "*B T"]]:
    """Return attention, each query's maximum, and its sum of exponentials.

    Together they are more precise than one logarithm: a small number added to
    200 loses its last digits. Arguments and errors are those of `attend_tiled`.
    """
    scores = check_shapes(query, key, value, block, scores)
    lead = torch.broadcast_shapes(*(x.shape[:-2] for x in (query, key, value)))
    outputs, maxima, totals = [], [], []
    for row in range(0, query.shape[-2], block):
        rows = promote_to_float32(query[..., row : row + block, :])
        first, stop = scores.key_range(row, row + rows.shape[-2])
        output = rows.new_zeros(*lead, rows.shape[-2], value.shape[-1])
        total = output.new_zeros(output.shape[:-1])
        maximum = torch.full_like(total, -torch.inf)
        for column in range(first, stop, block):
            keys = slice(column, min(column + block, stop))
            tile, _ = scores.compute(
                rows, promote_to_float32(key[..., keys, :]), row, column
            )
            highest = torch.maximum(maximum, tile.amax(dim=-1))
            factor = compute_rescaling(maximum, highest)
            exponentials = (tile - clamp_maximum(highest)[..., None]).exp_()
            total = total * factor + exponentials.sum(dim=-1)
            output = output * factor[..., None]
            output += exponentials @ promote_to_float32(value[..., keys, :])
            maximum = highest
        # A query that can attend to no key has output 0, which is divided by 1.
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
    block: int = BLOCK_SIZE,
    scores: TileScores | None = None,
) -> tuple[
    Float[Tensor, "*#B T D"], Float[Tensor, "*#B S D"], Float[Tensor, "*#B S E"]
]:
    """Return a loss's gradients on query, key and value of `attend_tiled`.

    Args:
        query: the queries.
        key: the keys.
        value: the values.
        output: the output of `attend_tiled`.
        lse: the logsumexp that it returned.
        upstream: the loss's gradient on the output.
        block: queries, and keys, of a tile.
        scores: as in the forward pass; scaled dot products unless given.
    """
    scores = check_shapes(query, key, value, block, scores)
    # Σ weights · (upstream · value) over the keys is upstream · output: the
    # term that chapter 4 subtracts from every score's gradient needs no tile.
    average = (promote_to_float32(output) * promote_to_float32(upstream)).sum(
        dim=-1, keepdim=True
    )
    dquery, dkey, dvalue = (
        x.new_zeros(x.shape, dtype=average.dtype) for x in (query, key, value)
    )
    for row in range(0, query.shape[-2], block):
        rows = slice(row, row + block)
        queries = promote_to_float32(query[..., rows, :])
        up = promote_to_float32(upstream[..., rows, :])
        row_lse = clamp_maximum(lse[..., rows])[..., None]
        first, stop = scores.key_range(row, row + queries.shape[-2])
        for column in range(first, stop, block):
            keys = slice(column, min(column + block, stop))
            tile_keys = promote_to_float32(key[..., keys, :])
            tile_values = promote_to_float32(value[..., keys, :])
            tile, slope = scores.compute(queries, tile_keys, row, column)
            weights = (tile - row_lse).exp_()
            add_to_rows(dvalue, keys, weights.transpose(-2, -1) @ up)
            # In place: three tensors of a tile's size are not made.
            dtile = up @ tile_values.transpose(-2, -1)
            dtile.sub_(average[..., rows, :]).mul_(weights).mul_(slope)
            add_to_rows(dquery, rows, dtile @ tile_keys)
            add_to_rows(dkey, keys, dtile.transpose(-2, -1) @ queries)
    return dquery.to(query), dkey.to(key), dvalue.to(value)


def promote_to_float32(x: Tensor) -> Tensor:
    """Return the tensor in single precision, or in double if it is double."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def add_to_rows(whole: Tensor, rows: slice, part: Tensor) -> None:
    """Add to some rows in place, summing over axes that were broadcast."""
    selected = whole[..., rows, :]
    selected += part.sum_to_size(selected.shape)


def check_shapes(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    block: int,
    scores: TileScores | None,
) -> TileScores:
    """Return the scores to use, or raise ValueError if shapes do not fit."""
    if block < 1:
        raise ValueError(f"block must be at least 1, not {block}")
    require_equal_widths(query, key)
    require_values(key, value)
    return scores or TileScores(key.shape[-2], key.shape[-1] ** -0.5)
